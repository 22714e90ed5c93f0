"""Check the ways to do one thing, time them in turns, and show the times as a table, with the machine."""

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

import torch

from lensbox.cli.timing import Call, Times, summarize, time_in_turns
from lensbox.common.machine import cpu_name, driver_version, package_version
from lensbox.ops import library_path, read_build_info

_MICROSECONDS = 1e6
_GRAPH_MILLISECONDS = 10
_GRAPH_TURNS = 3  # of ten samples each


class UnavailableError(Exception):
    """A way cannot run here; the message is the reason that the table shows."""


class WrongAnswerError(Exception):
    """A way gives another answer than the reference."""


def describe_machine(device: str, packages: Sequence[str]) -> str:
    """Return date, hardware and versions, a line each. packages: whose versions matter, besides torch."""
    info = read_build_info(library_path())
    lines = [
        ("date", datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")),
        ("CPU", f"{os.cpu_count()} cores, {cpu_name()}; load average at the start {os.getloadavg()[0]:.1f}"),
        ("system", f"{platform.system()} {platform.release()}, Python {platform.python_version()}"),
        ("lensbox", f"{info.version}, op library built for torch {info.torch} ({', '.join(info.backends)})"),
        ("torch", torch.__version__),
        *((package, package_version(package)) for package in packages),
    ]
    if device == "cuda":
        gpu = torch.cuda.get_device_properties(0)
        name = f"{gpu.name}, {gpu.multi_processor_count} multiprocessors"
        lines.insert(1, ("GPU", f"{name}, driver {driver_version()}, CUDA {torch.version.cuda}"))
    return "\n".join(f"{name + ':':<24}{value}" for name, value in lines)


@dataclass(frozen=True)
class Table:
    """A title, a header and lines of as many cells, as Markdown; notes stand below."""

    title: str
    header: Sequence[str]
    lines: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    def markdown(self) -> str:
        """Return the table with its columns aligned: the first one to the left, the others to the right."""
        cells = [list(self.header), *(list(line) for line in self.lines)]
        widths = [max(4, *(len(line[column]) for line in cells)) for column in range(len(self.header))]
        rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
        rows = []
        for first, *others in (cells[0], rule, *cells[1:]):
            padded = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
            rows.append(f"| {' | '.join([first.ljust(widths[0]), *padded])} |")
        notes = ["\n".join(f"- {note}" for note in self.notes)] if self.notes else []
        return "\n\n".join([f"### {self.title}", "\n".join(rows), *notes])


def number(value: float) -> str:
    """Return three significant digits, thousands grouped: 0.712, 4.40, 17.3, 55,800."""
    rounded = float(f"{value:.3g}")
    decimals = 0 if rounded >= 100 else 1 if rounded >= 10 else 2 if rounded >= 1 else 3
    return f"{rounded:,.{decimals}f}"


def spread(times: Times, unit: float = 1.0) -> str:
    """Return `median (p20-p80)`, multiplied by `unit`."""
    return f"{number(times.median * unit)} ({number(times.p20 * unit)}-{number(times.p80 * unit)})"


@dataclass(frozen=True)
class Way:
    """One way to do the work of a case.

    prepare: loads the way, checks its answer and returns the call to time; raises UnavailableError and
    WrongAnswerError. own: whether a wrong answer is a defect of Lensbox. in_graph: whether a CUDA graph can
    hold the call.
    """

    name: str
    prepare: Callable[[], Call]
    own: bool = False
    in_graph: bool = True


@dataclass(frozen=True)
class Case:
    """Ways to do the same thing, on "cpu" or "cuda". Each way is compared with the first."""

    title: str
    ways: Sequence[Way]
    device: str = "cpu"


@dataclass(frozen=True)
class Result:
    """The times of a case, by measure and way, and the reasons why a way has no time.

    Measures: "call", the host's time up to the result, or the CPU time of one CPU thread; on a GPU also
    "graph", the device's time of a call in a CUDA graph. own_defect: whether an answer of Lensbox was wrong
    or failed.
    """

    title: str
    times: Mapping[str, Mapping[str, Times]]
    notes: Mapping[str, str]
    own_defect: bool

    def table(self) -> Table:
        """Return a line for each way: microseconds, and the multiple of the first way's time."""
        header = ["way"]
        for measure in self.times:
            header += [f"{measure}, µs", "x"]
        lines = []
        for way in self.times["call"]:
            line = [way]
            for times in self.times.values():
                first = next(iter(times.values()), None)
                found = times.get(way)
                line += [spread(found, _MICROSECONDS)] if found else [""]
                line += [number(found.median / first.median)] if found and first else [""]
            lines.append(line)
        return Table(self.title, header, lines, [f"{way}: {note}" for way, note in self.notes.items()])


def run_case(case: Case, threads: int = 1, seconds: float = 2.0) -> Result:
    """Check all ways of a case, then time them in turns. A way that fails has a note in place of its times.

    threads: of the CPU. seconds: approximate time for all samples of a way.
    """
    calls: dict[str, Call] = {}
    notes: dict[str, str] = {}
    own_defect = False
    for way in case.ways:
        try:
            calls[way.name] = way.prepare()
        except UnavailableError as error:
            notes[way.name] = f"not available: {error}"
        except Exception as error:  # keep the figures of all other ways
            is_wrong = isinstance(error, WrongAnswerError)
            notes[way.name] = f"WRONG: {error}" if is_wrong else f"failed: {_first_line(error)}"
            own_defect = own_defect or way.own
    times = {"call": time_in_turns(calls, threads, seconds, case.device == "cpu" and threads == 1)}
    if case.device == "cuda":
        captured = {way.name: calls[way.name] for way in case.ways if way.in_graph and way.name in calls}
        if captured:
            times["graph"] = _times_in_graphs(captured, notes)
    return Result(case.title, times, notes, own_defect)


def _times_in_graphs(calls: Mapping[str, Call], notes: dict[str, str]) -> dict[str, Times]:
    """Return the device's seconds per call. Calls that cannot be captured get a note."""
    try:
        from triton.testing import do_bench_cudagraph  # pyright: ignore[reportMissingImports]
    except ImportError:
        notes["graph"] = "not available: triton is not installed"
        return {}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(_GRAPH_TURNS):
        for name in list(samples):
            try:
                taken = do_bench_cudagraph(calls[name], rep=_GRAPH_MILLISECONDS, return_mode="all")
            except RuntimeError as error:
                notes[name] = f"no CUDA graph: {_first_line(error)}"
                del samples[name]
            else:
                samples[name] += [milliseconds / 1e3 for milliseconds in taken]
    return {name: summarize(taken) for name, taken in samples.items()}


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
