"""Ways to do the same thing: each is checked, then all are timed in turn."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch

from lensbox.bench.measurement import (
    MOST_CALLS_ON_CPU,
    MOST_CALLS_ON_GPU,
    Effort,
    failure_note,
    graph_iterations,
)
from lensbox.bench.timing import (
    Clock,
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

Call = Callable[[], object]
Key = TypeVar("Key")

_WARM_CALLS = 3  # on a GPU, TorchScript's executor watches the first call and compiles in the second


@dataclass(frozen=True)
class Outcome:
    """Microseconds a call, or the reason why there are none."""

    summary: Summary | None = None
    note: str = ""


def compare(ways: Mapping[Key, Callable[[], Series]]) -> dict[Key, Outcome]:
    """Times each way that can run and is right.

    ways: each checks its answer and says how it is sampled; raises UnavailableError and WrongAnswerError.
    """
    series: dict[Key, Series] = {}
    outcomes: dict[Key, Outcome] = {}
    for key, prepare in ways.items():
        try:
            series[key] = prepare()
        except Exception as error:  # one way's failure must not cost the figures of the others
            outcomes[key] = Outcome(note=failure_note(error))

    def failed(key: Key, error: Exception) -> None:
        outcomes[key] = Outcome(note=failure_note(error))

    samples = interleave(series, failed)
    outcomes |= {key: Outcome(summarize(of_key)) for key, of_key in samples.items()}
    return {key: outcomes[key] for key in ways}


def clock_of(threads: int) -> Clock:
    """CPU time where one thread does all the work. On an idle machine that is the time that passes; on a busy
    one the turns of other processes are left out, which would hit long calls more often than short ones."""
    return time.process_time if threads == 1 else time.perf_counter


def call_series(call: Call, effort: Effort, clock: Clock) -> Series:
    """Of calls that end on the CPU."""
    run = _run(call)
    pace = find_pace(effort.sample_seconds, run, nothing, MOST_CALLS_ON_CPU, clock)
    return Series(call_sampler(run, pace.calls, nothing, clock), effort.rounds_at(pace))


def complete_series(call: Call, effort: Effort) -> Series:
    """Of calls that a GPU completes."""
    run, synchronize = _run(call), torch.cuda.synchronize
    for index in range(_WARM_CALLS):
        run(index)
    pace = find_pace(effort.sample_seconds, run, synchronize, MOST_CALLS_ON_GPU)
    return Series(complete_sampler(run, pace.calls, synchronize), effort.rounds_at(pace))


def graph_series(call: Call, effort: Effort) -> Series:
    """Of what the GPU does for a call, in a CUDA graph of many."""
    run = _run(call)
    pace = find_pace(effort.sample_seconds, run, torch.cuda.synchronize, MOST_CALLS_ON_GPU)
    return Series(graph_sampler(run, graph_iterations(pace)), effort.rounds_at(pace))


def _run(call: Call) -> Callable[[int], object]:
    def run(_: int) -> object:
        return call()

    return run
