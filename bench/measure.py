"""Check the ways to do one thing, time them in turns, and show the times as a table, with the machine."""

import contextlib
import gc
import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import torch

from lensbox.bench import GROUPS
from lensbox.cli.bench import Call, Times, summarize, time_in_turns
from lensbox.common.errors import ExitCode, LensboxError
from lensbox.common.machine import keep_freed_memory, package_version
from lensbox.runtime.device import choose_device
from lensbox.runtime.info import report

_GRAPH_MILLISECONDS = 10
_GRAPH_TURNS = 3  # of ten samples each
# torchvision's ops wait for the device, which no graph can hold; the loop launches thousands of kernels.
_WITHOUT_GRAPH = ("torchvision", "per-sample loop")


class UnavailableError(LensboxError):
    """A way cannot run here; the message is the reason that the table shows."""

    exit_code = ExitCode.UNUSABLE


class WrongAnswerError(LensboxError):
    """A way gives another answer than the reference."""


def optional(module: str) -> Any:
    """Import a module of a peer. Raise UnavailableError."""
    try:
        return importlib.import_module(module)
    except (ImportError, RuntimeError, OSError) as error:  # the last two: built for another torch
        raise UnavailableError(f"{module} cannot be imported: {_first_line(error)}") from error


def say(text: str) -> None:
    """Print a paragraph at once."""
    print(text, end="\n\n", flush=True)


def describe_machine(*packages: str) -> str:
    """Return the date, what `lensbox info` reports, and the versions of packages, a line each."""
    lines = [
        ("date", datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")),
        ("load average", f"{os.getloadavg()[0]:.1f}"),
        *report(),
        *((package, package_version(package)) for package in packages),
    ]
    return "\n".join(f"{name + ':':<24}{value}" for name, value in lines)


def markdown(
    title: str, header: Sequence[str], lines: Sequence[Sequence[str]], notes: Sequence[str] = ()
) -> str:
    """Return a table with aligned columns, the first one to the left, all others to the right; then notes."""
    table = [header, ["----", *["---:"] * (len(header) - 1)], *lines]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    rows = []
    for line in table:
        padded = [cell.rjust(width) for cell, width in zip(line, widths, strict=True)]
        rows.append(f"| {' | '.join([line[0].ljust(widths[0]), *padded[1:]])} |")
    parts = f"### {title}", "\n".join(rows), "\n".join(f"- {note}" for note in notes)
    return "\n\n".join(filter(None, parts))


def number(value: float) -> str:
    """Return three significant digits, thousands grouped: 0.712, 4.40, 17.3, 55,800."""
    rounded = float(f"{value:.3g}")
    decimals = 0 if rounded >= 100 else 1 if rounded >= 10 else 2 if rounded >= 1 else 3
    return f"{rounded:,.{decimals}f}"


def spread(times: Times, unit: float = 1.0) -> str:
    """Return `median (p20-p80)`, multiplied by `unit`."""
    return f"{number(times.median * unit)} ({number(times.p20 * unit)}-{number(times.p80 * unit)})"


class Case(NamedTuple):
    """Ways to do the same thing, on "cpu" or "cuda". Each way is compared with the first.

    ways: by name, Lensbox's own begin with "lensbox". A way loads what it needs and returns the call to time;
    it raises UnavailableError. check: takes the name of a way and its answer, and raises WrongAnswerError.
    """

    title: str
    device: str
    ways: Mapping[str, Callable[[], Call]]
    check: Callable[[str, Any], None]


def run_case(case: Case, seconds: float = 2.0) -> tuple[str, bool]:
    """Check all ways of a case, then time them in turns.

    The column "call" is the host's time up to the result, or the CPU time of one CPU thread; "graph" is the
    device's time of a call in a CUDA graph. seconds: approximate time for all samples of a way. Return the
    table, with a note for each way that fails, and whether Lensbox was right.
    """
    calls: dict[str, Call] = {}
    notes: dict[str, str] = {}
    for name, load in case.ways.items():
        try:
            call = load()
            case.check(name, call())
            calls[name] = call
        except UnavailableError as error:
            notes[name] = f"not available: {error}"
        except WrongAnswerError as error:
            notes[name] = f"WRONG: {error}"
        except Exception as error:  # keep the figures of all other ways
            notes[name] = f"failed: {_first_line(error)}"
    is_good = not any(name.startswith("lensbox") for name in notes)
    times = {"call": time_in_turns(calls, 1, seconds, cpu_time=case.device == "cpu")}
    if case.device == "cuda":
        captured = {name: call for name, call in calls.items() if name not in _WITHOUT_GRAPH}
        times["graph"] = _times_in_graphs(captured, notes)
    return time_table(case.title, times, notes), is_good


def run_ops(device: str, quick: bool, only: Sequence[str]) -> None:
    """Run the groups `only`, all by default. Print each table when it is complete.

    At the end, raise WrongAnswerError if an answer of Lensbox was wrong.
    """
    where, wrong = choose_device(device), []
    keep_freed_memory()
    torch.set_num_threads(1)
    say(describe_machine("opencv-python-headless"))
    for group in only or [name for name in GROUPS if not (quick and name == "sizes")]:
        module = importlib.import_module(f"lensbox.bench.ops.{GROUPS[group]}")
        for case in module.cases(group, where, quick):
            table, is_right = run_case(case, 0.5 if quick else 2.0)
            say(table)
            wrong += [] if is_right else [case.title]
            # Captured graphs and the guards of compiled code would slow the next case down.
            torch.compiler.reset()
            gc.collect()
            torch.cuda.empty_cache()  # does nothing without CUDA
    if wrong:
        raise WrongAnswerError(f"Lensbox's own answers were wrong: {'; '.join(wrong)}")


def time_table(title: str, times: Mapping[str, Mapping[str, Times]], notes: Mapping[str, str]) -> str:
    """Return a line for each way: microseconds by measure, and the multiple of the first way's time."""
    header, lines = ["way"], [[way] for way in times["call"]]
    for measure, found in times.items():
        header += [f"{measure}, µs", "x"]
        first = next(iter(found.values()), None)
        for line in lines:
            taken = found.get(line[0])
            known = first and taken and [spread(taken, 1e6), number(taken.median / first.median)]
            line += known or ["", ""]
    return markdown(title, header, lines, [f"{way}: {note}" for way, note in notes.items()])


def _times_in_graphs(calls: Mapping[str, Call], notes: dict[str, str]) -> dict[str, Times]:
    """Return the device's seconds per call. Calls that cannot be captured get a note."""
    try:
        bench = optional("triton.testing").do_bench_cudagraph
    except UnavailableError as error:
        notes["graph"] = f"not available: {error}"
        return {}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(_GRAPH_TURNS):
        for name in list(samples):
            try:
                taken = bench(calls[name], rep=_GRAPH_MILLISECONDS, return_mode="all")
            except RuntimeError as error:
                notes[name] = f"no CUDA graph: {_first_line(error)}"
                del samples[name]
            else:
                samples[name] += [milliseconds / 1e3 for milliseconds in taken]
    return {name: summarize(taken) for name, taken in samples.items()}


def cpu_seconds(ancestor: int) -> float:
    """Return the CPU time of a living process and of its descendants."""
    parents, ticks = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # the process has ended
            fields = stat.read_text().rpartition(")")[2].split()  # the name before them may have spaces
            process = int(stat.parent.name)
            parents[process], ticks[process] = int(fields[1]), int(fields[11]) + int(fields[12])
    family = {ancestor}
    while grown := {child for child, parent in parents.items() if parent in family} - family:
        family |= grown
    return sum(ticks.get(process, 0) for process in family) / os.sysconf("SC_CLK_TCK")


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
