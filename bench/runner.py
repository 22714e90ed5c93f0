"""The runner: checks the ways to do one thing, times them in turn, and returns a row per figure."""

import gc
import math
import time
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from lensbox.bench.machine import cpu_threads
from lensbox.bench.timing import (
    MICROSECONDS,
    Clock,
    Pace,
    Run,
    Sampler,
    Series,
    Summary,
    call_sampler,
    complete_sampler,
    find_pace,
    graph_sampler,
    interleave,
    nothing,
    summarize,
)

# "graph cold": as "graph", with inputs that are not in the cache. "": the way was not timed at all.
Measure = Literal["call", "complete", "graph", "graph cold", ""]
MakeRun = Callable[[int], Run]  # returns the call to be timed, which goes round so many copies of the inputs

_FEWEST_ROUNDS = 3
_MOST_CALLS = {"cpu": 10_000, "cuda": 20}  # on a GPU more would fill its queue, and the host would wait
_WARM_CALLS = 3  # TorchScript watches the first call on a GPU and compiles in the second
_GRAPH_SECONDS = 0.005
_GRAPH_ITERATIONS = (10, 200)
_MOST_COPIES = 256  # of the inputs


class UnavailableError(Exception):
    """A way cannot run here; the message is the reason that the table shows."""


class WrongAnswerError(Exception):
    """A way gives another answer than the reference."""


@dataclass(frozen=True)
class Effort:
    """The length of a measurement.

    rounds: the most samples of a figure. sample_seconds: approximate length of a sample, where calls are
    short enough. figure_seconds: approximate time for all samples of a figure. quick: whether ways that are
    slow to start are left out.
    """

    rounds: int = 30
    sample_seconds: float = 0.02
    figure_seconds: float = 1.5
    quick: bool = False

    def rounds_at(self, pace: Pace) -> int:
        """Return the number of samples to take at that pace."""
        seconds = max(pace.seconds * pace.calls, 1e-9)
        return max(_FEWEST_ROUNDS, min(self.rounds, int(self.figure_seconds / seconds)))


@dataclass(frozen=True)
class Way:
    """One way to do the work of a case.

    prepare: loads it, checks its answer and returns the call; raises UnavailableError and WrongAnswerError.
    measures: the kinds of time to take.
    images: number of images in a call; 0 hides the column of images per second.
    useful_bytes: the least that the task must read and write; 0 hides the share of a copy's bandwidth.
    own: whether a defect of this way is Lensbox's own.
    no_graph: why a CUDA graph cannot hold it, or "". no_copies: why its inputs cannot be copied, or "".
    slow_to_start: whether `--quick` leaves it out. samplers: further ones by measure, put in by `prepare`.
    """

    name: str
    prepare: Callable[[], MakeRun]
    measures: Sequence[Measure] = ("call",)
    images: int = 0
    useful_bytes: int = 0
    own: bool = False
    no_graph: str = ""
    no_copies: str = ""
    slow_to_start: bool = False
    samplers: MutableMapping[str, Sampler] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One table of the report: ways to do the same thing. Each way is compared with the first.

    threads: of the CPU; 0 leaves torch's choice. cpu_time: whether one thread is timed by its CPU time, which
    leaves out the turns of other processes on a busy machine.
    """

    title: str
    ways: Sequence[Way]
    device: str = "cpu"
    threads: int = 0
    cpu_time: bool = False


@dataclass(frozen=True)
class Row:
    """One figure, or the reason why there is none.

    summary: microseconds per call. share: useful bytes over the time, as a share of the copy bandwidth.
    """

    case: str
    way: str
    measure: str
    summary: Summary | None = None
    images: int = 0
    useful_bytes: int = 0
    share: float | None = None
    note: str = ""
    own: bool = False

    @property
    def is_own_defect(self) -> bool:
        """Return whether this is an answer of Lensbox that was wrong or failed."""
        return self.own and self.note.startswith(("WRONG", "failed"))


def run_case(case: Case, effort: Effort, copy_bytes_per_second: float = math.inf) -> list[Row]:
    """Check and time all ways of a case in turn. A way that fails becomes a row with a note."""
    with cpu_threads(case.threads):
        try:
            return _run_case(case, effort, copy_bytes_per_second)
        finally:
            if case.device == "cuda" or not effort.quick:
                _release_memory()


def always(call: Callable[[], object]) -> MakeRun:
    """Return the call itself, whatever the number of copies."""

    def run(_: int) -> object:
        return call()

    return lambda copies: run


def copies_out_of_cache(bytes_touched: int, cache_bytes: int) -> int | None:
    """Return how many copies of the inputs fill four times the cache; None if more than 256 would."""
    copies = max(2, math.ceil(4 * cache_bytes / max(bytes_touched, 1)))
    return copies if copies <= _MOST_COPIES else None


def failure_note(error: Exception) -> str:
    """Return the reason why something has no figure, as the tables show it."""
    if isinstance(error, UnavailableError):
        return f"not available: {error}"
    if isinstance(error, WrongAnswerError):
        return f"WRONG: {error}"
    return f"failed: {_first_line(error)}"


def _run_case(case: Case, effort: Effort, copy_bytes_per_second: float) -> list[Row]:
    plan = _Plan(case, effort)
    for way in case.ways:
        plan.add(way)
    rows = list(plan.notes)
    samples = interleave(plan.series, plan.failed)
    rows += plan.notes[len(rows) :]
    ways = {way.name: way for way in case.ways}
    for (name, measure), taken in samples.items():
        way, summary, share = ways[name], summarize(taken), None
        if way.useful_bytes and _reads_memory(measure, way.useful_bytes, case.device):
            share = way.useful_bytes / (summary.median / MICROSECONDS) / copy_bytes_per_second
        rows.append(Row(case.title, name, measure, summary, way.images, way.useful_bytes, share))
    order = list(ways)
    return sorted(rows, key=lambda row: order.index(row.way))


@dataclass
class _Plan:
    """The series of a case, by way and measure, and rows for those that cannot be had."""

    case: Case
    effort: Effort
    series: dict[tuple[str, str], Series] = field(default_factory=dict)
    notes: list[Row] = field(default_factory=list)

    def add(self, way: Way) -> None:
        try:
            if way.slow_to_start and self.effort.quick:
                raise UnavailableError("left out by --quick: it is slow to start")
            on_gpu = self.case.device == "cuda"
            make_run = way.prepare()
            run = make_run(1)
            for index in range(_WARM_CALLS if on_gpu else 0):
                run(index)
            most = _MOST_CALLS[self.case.device]
            pace = find_pace(self.effort.sample_seconds, run, self._synchronize, most, self._clock)
        except Exception as error:  # keep the figures of all other ways
            self.notes.append(self._note(way, "", error))
            return
        for measure in way.measures:
            try:
                sampler = self._sampler(way, measure, make_run, run, pace)
            except Exception as error:
                self.notes.append(self._note(way, measure, error))
            else:
                self.series[way.name, measure] = Series(sampler, self.effort.rounds_at(pace))
        for name, sampler in way.samplers.items():
            self.series[way.name, name] = Series(sampler, self.effort.rounds_at(pace))

    def failed(self, key: tuple[str, str], error: Exception) -> None:
        """Note that a way failed while it was sampled."""
        name, measure = key
        (way,) = (way for way in self.case.ways if way.name == name)
        self.notes.append(self._note(way, measure, error))

    @property
    def _clock(self) -> Clock:
        uses_cpu_time = self.case.cpu_time and self.case.device == "cpu" and self.case.threads == 1
        return time.process_time if uses_cpu_time else time.perf_counter

    def _synchronize(self) -> None:
        (torch.cuda.synchronize if self.case.device == "cuda" else nothing)()

    def _note(self, way: Way, measure: str, error: Exception) -> Row:
        return Row(self.case.title, way.name, measure, note=failure_note(error), own=way.own)

    def _sampler(self, way: Way, measure: Measure, make_run: MakeRun, run: Run, pace: Pace) -> Sampler:
        if measure == "call":
            return call_sampler(run, pace.calls, self._synchronize, self._clock)
        if measure == "complete":
            return complete_sampler(run, pace.calls, self._synchronize)
        if way.no_graph:
            raise UnavailableError(f"no CUDA graph: {way.no_graph}")
        fewest, most = _GRAPH_ITERATIONS
        copies, iterations = 1, max(fewest, min(most, int(_GRAPH_SECONDS / max(pace.seconds, 1e-9))))
        if measure == "graph cold":
            copies = _copies(way)
            run = make_run(copies)
            iterations = copies * math.ceil(fewest / copies)
        try:
            return graph_sampler(run, iterations, keep_outputs=copies > 1)
        except RuntimeError as error:
            raise UnavailableError(f"no CUDA graph: {_first_line(error)}") from error


def _reads_memory(measure: str, useful_bytes: int, device: str) -> bool:
    """Say whether a share of the copy bandwidth makes sense: on the CPU, and for inputs out of the cache."""
    if device == "cpu" or measure == "graph cold":
        return True
    return measure == "graph" and useful_bytes > 4 * _cache_bytes()


def _cache_bytes() -> int:
    return int(torch.cuda.get_device_properties(0).L2_cache_size)


def _copies(way: Way) -> int:
    if way.no_copies:
        raise UnavailableError(way.no_copies)
    copies = copies_out_of_cache(way.useful_bytes, _cache_bytes())
    if copies is None:
        raise UnavailableError("inputs are too small to be kept out of the cache")
    return copies


def _release_memory() -> None:
    """Free captured graphs and compiled code, so that no case is slowed by the guards of another."""
    torch.compiler.reset()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
