"""The timing core: what one sample is, how samples are taken in turn, how they are summed up.

All times are microseconds for one call. Three things are timed:

* call: how long the host is busy with a call. The device is idle at the start and is not waited for.
* complete: the same, with the wait for the device counted.
* graph: how long the device is busy with a call. Many calls are captured in one CUDA graph, which is replayed
  between two events; no Python and no launch from the host is in it.
"""

import gc
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch

Clock = Callable[[], float]  # seconds
Run = Callable[[int], object]  # the i-th call; what it returns is what it computed
Sampler = Callable[[], float]  # one sample
Key = TypeVar("Key")

MICROSECONDS = 1e6
WARM_SECONDS = 0.01
WARM_ROUNDS = 10  # with more calls than that the queue to a slow device would be full


@dataclass(frozen=True)
class Summary:
    """Of many samples: median, 20th and 80th percentile in microseconds, and how many there were."""

    median: float
    p20: float
    p80: float
    samples: int


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of `values` lie, interpolated linearly between neighbours."""
    if not values:
        raise ValueError("values must hold at least one sample, got none")
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def summarize(samples: Sequence[float]) -> Summary:
    return Summary(percentile(samples, 0.5), percentile(samples, 0.2), percentile(samples, 0.8), len(samples))


def nothing() -> None:
    """Waits for the CPU, which never runs behind."""


def call_sampler(
    run: Run, calls: int, synchronize: Callable[[], None], clock: Clock = time.perf_counter
) -> Sampler:
    """Host time of a call, averaged over `calls` calls that start with an idle device.

    Others go before, uncounted, for WARM_SECONDS or less: in between, other peers had the processor with its
    caches, and threads that rest wake up slowly. Where the device takes longer than the host, its queue fills
    up after about a thousand launches and the host has to wait: keep `calls` small.
    """

    def sample() -> float:
        warm_until = clock() + WARM_SECONDS
        for index in range(WARM_ROUNDS * calls if calls > 1 else 0):
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
    """Time of a call up to its result, averaged over `calls` calls in a row."""

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
    """How many calls make one sample, and about how long a call takes to complete, in seconds."""

    calls: int
    seconds: float


def find_pace(
    sample_seconds: float,
    run: Run,
    synchronize: Callable[[], None],
    at_most: int,
    clock: Clock = time.perf_counter,
) -> Pace:
    """As many calls, 1 to `at_most`, as take about `sample_seconds`. Warms up as it goes."""
    calls = 1
    while True:
        seconds = complete_sampler(run, calls, synchronize, clock)() / MICROSECONDS
        if seconds * calls >= sample_seconds / 4 or calls >= at_most:
            break
        calls *= 2
    wanted = at_most if seconds <= 0 else int(sample_seconds / seconds)
    return Pace(max(1, min(at_most, wanted)), seconds)


def graph_sampler(run: Run, iterations: int, keep_outputs: bool = False) -> Sampler:
    """Device time of a call, by replaying a CUDA graph of run(0) ... run(iterations - 1).

    keep_outputs: every iteration writes to memory of its own. Without it the graph's memory pool gives the
        second iteration what the first one has let go, so that outputs are written to a warm cache.
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
    """Samples a captured graph.

    run: what was captured. It holds the inputs, which the graph does not: without it their memory would go
        back to the device, and a replay would read what is no longer there.
    """

    graph: torch.cuda.CUDAGraph
    run: Run
    iterations: int

    def __call__(self) -> float:
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        # The first replay keeps the device busy while the host launches the second, so that the time between
        # the events holds no launch.
        self.graph.replay()
        start.record()
        self.graph.replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e3 / self.iterations


@dataclass(frozen=True)
class Series:
    """A sampler, and how many samples are wanted of it."""

    sampler: Sampler
    rounds: int


def interleave(
    series: Mapping[Key, Series], failed: Callable[[Key, Exception], None] | None = None
) -> dict[Key, list[float]]:
    """Takes the samples of all series in turn, so that a disturbance meets all of them and not one. A series
    with fewer rounds than the longest has them spread evenly. One sample of each goes first, uncounted.

    failed: called with a series that raises and what it raised; the others go on without it. Without it, the
    first that raises ends all.
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
