"""Samples of time: how one is taken, how series of them take turns, how they are summed up.

All times are microseconds per call. A sample has one of these measures:

* call: host time. The device is idle at the start and is not waited for.
* complete: host time until the device has finished.
* graph: device time. Many calls are captured in one CUDA graph, which is replayed between two events.
"""

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch

Clock = Callable[[], float]  # seconds
Run = Callable[[int], object]  # runs the i-th call and returns its result
Sampler = Callable[[], float]  # takes one sample
Key = TypeVar("Key")

MICROSECONDS = 1e6
_WARM_SECONDS = 0.01
_WARM_ROUNDS = 10  # more calls would fill the queue of a slow device


@dataclass(frozen=True)
class Summary:
    """Median, 20th and 80th percentile in microseconds, and the number of samples."""

    median: float
    p20: float
    p80: float
    samples: int


def summarize(samples: Sequence[float]) -> Summary:
    """Sum up at least two samples. Percentiles are interpolated linearly."""
    p20, _, _, p80 = statistics.quantiles(samples, n=5, method="inclusive")
    return Summary(statistics.median(samples), p20, p80, len(samples))


def nothing() -> None:
    """Synchronize with the CPU: there is nothing to wait for."""


def call_sampler(
    run: Run, calls: int, synchronize: Callable[[], None], clock: Clock = time.perf_counter
) -> Sampler:
    """Sample the host time of a call, averaged over `calls` calls that start with an idle device.

    Uncounted warm-up calls go first, for at most 10 ms, because the other ways used the caches in between.
    Keep `calls` small on a GPU: after about a thousand launches its queue is full and the host waits.
    """

    def sample() -> float:
        warm_until = clock() + _WARM_SECONDS
        for index in range(_WARM_ROUNDS * calls if calls > 1 else 0):
            if clock() >= warm_until:
                break
            run(index)
        synchronize()
        start = clock()
        for index in range(calls):
            run(index)
        return (clock() - start) / calls * MICROSECONDS

    return sample


def complete_sampler(
    run: Run, calls: int, synchronize: Callable[[], None], clock: Clock = time.perf_counter
) -> Sampler:
    """Sample the time of a call up to its result, averaged over `calls` calls in a row."""

    def sample() -> float:
        synchronize()
        start = clock()
        for index in range(calls):
            run(index)
        synchronize()
        return (clock() - start) / calls * MICROSECONDS

    return sample


@dataclass(frozen=True)
class Pace:
    """The number of calls in one sample, and the approximate seconds of one call."""

    calls: int
    seconds: float


def find_pace(
    sample_seconds: float,
    run: Run,
    synchronize: Callable[[], None],
    at_most: int,
    clock: Clock = time.perf_counter,
) -> Pace:
    """Find how many calls, 1 to `at_most`, take about `sample_seconds`. Warms up as it goes."""
    calls = 1
    while True:
        seconds = complete_sampler(run, calls, synchronize, clock)() / MICROSECONDS
        if seconds * calls >= sample_seconds / 4 or calls >= at_most:
            break
        calls *= 2
    wanted = at_most if seconds <= 0 else int(sample_seconds / seconds)
    return Pace(max(1, min(at_most, wanted)), seconds)


def graph_sampler(run: Run, iterations: int, keep_outputs: bool = False) -> Sampler:
    """Sample the device time of a call, by replaying a CUDA graph of run(0) ... run(iterations - 1).

    keep_outputs: each iteration writes to new memory, so that outputs are not in the cache.
    """
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        # Lazily loaded kernels, library handles and inputs made on first use must exist before the capture.
        for index in range(iterations):
            run(index)
    torch.cuda.current_stream().wait_stream(side_stream)
    torch.cuda.synchronize()

    graph = torch.cuda.CUDAGraph()
    kept = []
    # A failed capture leaves the stream of torch.cuda.graph current; the outer context takes it back.
    with torch.cuda.stream(torch.cuda.current_stream()), torch.cuda.graph(graph):
        for index in range(iterations):
            output = run(index)
            if keep_outputs:
                kept.append(output)
        del output
    kept.clear()
    graph.replay()
    return _Replays(graph, run, iterations)


@dataclass(frozen=True)
class _Replays:
    """Samples a captured graph. Holds `run`, because the graph itself does not keep its inputs alive."""

    graph: torch.cuda.CUDAGraph
    run: Run
    iterations: int

    def __call__(self) -> float:
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        # The first replay keeps the device busy while the host launches the second: no launch is timed.
        self.graph.replay()
        start.record()
        self.graph.replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e3 / self.iterations


@dataclass(frozen=True)
class Series:
    """A sampler, and the number of samples to take."""

    sampler: Sampler
    rounds: int


def interleave(
    series: Mapping[Key, Series], failed: Callable[[Key, Exception], None] | None = None
) -> dict[Key, list[float]]:
    """Take the samples of all series in turn, so that a disturbance of the machine hits all of them.

    A series with fewer rounds than the longest has them spread evenly. The first sample of each series is
    not counted. failed: called with the key of a series that raises and its error; the other series go on.
    Without `failed` the first error ends all.
    """
    samples: dict[Key, list[float]] = {name: [] for name in series}
    longest = max((entry.rounds for entry in series.values()), default=0)

    def take(name: Key) -> float | None:
        try:
            return series[name].sampler()
        except Exception as error:
            if failed is None:
                raise
            del samples[name]
            failed(name, error)
            return None

    with _without_garbage_collection():
        for name in series:
            take(name)
        for turn in range(longest):
            for name in [*samples]:
                rounds = series[name].rounds
                if (turn + 1) * rounds // longest > turn * rounds // longest:
                    sample = take(name)
                    if sample is not None:
                        samples[name].append(sample)
    return samples


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
