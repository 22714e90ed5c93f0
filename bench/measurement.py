"""Runs one case: loads its peers, checks their answers, times them in turn, and sums up."""

import gc
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from lensbox.bench.bandwidth import cache_bytes
from lensbox.bench.cases import Case
from lensbox.bench.check import WrongAnswerError
from lensbox.bench.inputs import cold_sets
from lensbox.bench.peers.compiled import forget_compiled
from lensbox.bench.peers.peer import Peer, UnavailableError
from lensbox.bench.results import Measure, Row
from lensbox.bench.threads import cpu_threads
from lensbox.bench.timing import (
    MICROSECONDS,
    Pace,
    Run,
    Sampler,
    Series,
    call_sampler,
    complete_sampler,
    find_pace,
    graph_sampler,
    interleave,
    nothing,
    summarize,
)
from lensbox.bench.workload import Workload, make_workload


@dataclass(frozen=True)
class Effort:
    """How long to measure.

    rounds: samples of each figure, at most.
    sample_seconds: about how long one sample of host time lasts, where calls are short enough.
    figure_seconds: about how long all samples of one figure may take.
    leave_out_slow_starts: whether peers that compile for each shape are left out.
    """

    rounds: int = 30
    sample_seconds: float = 0.02
    figure_seconds: float = 1.5
    leave_out_slow_starts: bool = False

    def rounds_at(self, pace: Pace) -> int:
        """How many samples of that pace are to be taken of a figure."""
        sample_seconds = max(pace.seconds * pace.calls, 1e-9)
        return max(FEWEST_ROUNDS, min(self.rounds, int(self.figure_seconds / sample_seconds)))


FEWEST_ROUNDS = 3
QUICK = Effort(rounds=9, sample_seconds=0.005, figure_seconds=0.5, leave_out_slow_starts=True)

# More calls would fill the queue to the device, and the host would have to wait for it.
MOST_CALLS_ON_GPU = 20
MOST_CALLS_ON_CPU = 10_000
_GRAPH_SECONDS = 0.005
_GRAPH_ITERATIONS = (10, 200)


def run_case(case: Case, effort: Effort, copy_bytes_per_second: float) -> list[Row]:
    """All figures of a case, and a row with a note for each that could not be had."""
    with cpu_threads(case.threads):
        try:
            return _run_case(case, effort, copy_bytes_per_second)
        finally:
            _release()


def _run_case(case: Case, effort: Effort, copy_bytes_per_second: float) -> list[Row]:
    workload = make_workload(case)
    series: dict[tuple[str, Measure], Series] = {}
    rows: list[Row] = []
    for peer in workload.peers:
        try:
            series.update(_prepare(case, workload, peer, effort, rows))
        except Exception as error:  # one peer's failure must not cost the figures of the others
            rows.append(Row(case, peer.name, "", note=failure_note(error)))

    def failed(key: tuple[str, Measure], error: Exception) -> None:
        rows.append(Row(case, *key, note=failure_note(error)))

    for (peer_name, measure), samples in interleave(series, failed).items():
        summary = summarize(samples)
        share = None
        # Shares of the memory's speed make sense where the memory is read: cold inputs, or the CPU.
        useful = workload.useful_bytes(peer_name)
        if useful and (measure == "graph cold" or case.device == "cpu"):
            share = useful / (summary.median / MICROSECONDS) / copy_bytes_per_second
        rows.append(Row(case, peer_name, measure, summary, useful, share))
    order = {peer.name: place for place, peer in enumerate(workload.peers)}
    return sorted(rows, key=lambda row: order[row.peer])


def _prepare(
    case: Case, workload: Workload, peer: Peer[Any], effort: Effort, rows: list[Row]
) -> dict[tuple[str, Measure], Series]:
    """What is to be sampled of a peer. Adds rows with notes for measures that it cannot have."""
    if peer.no_backward and case.direction != "forward":
        raise UnavailableError(peer.no_backward)
    if peer.slow_to_start and effort.leave_out_slow_starts:
        raise UnavailableError("left out by --quick: it compiles for each shape")
    on_gpu = case.device == "cuda"
    synchronize: Callable[[], None] = torch.cuda.synchronize if on_gpu else nothing
    function = peer.load(torch.device(case.device))
    workload.check(peer, function)
    run = workload.make_run(function, 1)
    pace = find_pace(
        effort.sample_seconds, run, synchronize, MOST_CALLS_ON_GPU if on_gpu else MOST_CALLS_ON_CPU
    )
    series: dict[tuple[str, Measure], Series] = {}
    for measure in workload.measures if on_gpu else ("call",):
        try:
            sampler = _make_sampler(measure, workload, peer, function, run, pace, synchronize)
        except UnavailableError as error:
            rows.append(Row(case, peer.name, measure, note=f"not available: {error}"))
            continue
        series[peer.name, measure] = Series(sampler, effort.rounds_at(pace))
    return series


def _make_sampler(
    measure: Measure,
    workload: Workload,
    peer: Peer[Any],
    function: Any,
    run: Run,
    pace: Pace,
    synchronize: Callable[[], None],
) -> Sampler:
    if measure == "call":
        return call_sampler(run, pace.calls, synchronize)
    if measure == "complete":
        return complete_sampler(run, pace.calls, synchronize)
    if peer.not_capturable:
        raise UnavailableError(f"no CUDA graph: {peer.not_capturable}")
    sets = 1
    if measure == "graph":
        iterations = graph_iterations(pace)
    else:
        if not peer.rotates:
            raise UnavailableError("its inputs are too many tensors to be copied hundreds of times")
        needed = cold_sets(workload.useful_bytes(peer.name), cache_bytes(torch.device("cuda")))
        if needed is None:
            raise UnavailableError("inputs are too small to be kept out of the cache")
        sets = needed
        run = workload.make_run(function, sets)
        iterations = sets * math.ceil(_GRAPH_ITERATIONS[0] / sets)
    try:
        return graph_sampler(run, iterations, keep_outputs=sets > 1)
    except RuntimeError as error:
        raise UnavailableError(f"no CUDA graph: {first_line(error)}") from error


def graph_iterations(pace: Pace) -> int:
    """How many calls of that pace are captured in one CUDA graph."""
    fewest, most = _GRAPH_ITERATIONS
    return max(fewest, min(most, int(_GRAPH_SECONDS / max(pace.seconds, 1e-9))))


def _release() -> None:
    """Gives memory back between cases: captured graphs hold theirs, and compiled code its guards."""
    if "torch._dynamo" in sys.modules:
        forget_compiled()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def failure_note(error: Exception) -> str:
    """Why something has no figure, for its table."""
    if isinstance(error, UnavailableError):
        return f"not available: {error}"
    if isinstance(error, WrongAnswerError):
        return f"WRONG: {error}"
    return f"failed: {first_line(error)}"


def first_line(error: BaseException) -> str:
    """What kind of error, and the first line of its message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
