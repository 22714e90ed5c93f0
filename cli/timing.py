"""Time calls in turns with `torch.utils.benchmark`."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from torch.utils.benchmark import Timer, timer

_WARM_CALLS = 3  # TorchScript watches the first call and compiles in the second
_BLOCK_SECONDS = 0.01
_ROUNDS = 30
_FEWEST_ROUNDS = 5

Call = Callable[[], object]
Key = TypeVar("Key")


class Times(NamedTuple):
    """Median, 20th and 80th percentile in seconds, and the number of samples."""

    median: float
    p20: float
    p80: float
    samples: int


def summarize(samples: Sequence[float]) -> Times:
    """Summarize at least two samples. Percentiles are interpolated linearly."""
    p20, _, _, p80 = statistics.quantiles(samples, n=5, method="inclusive")
    return Times(statistics.median(samples), p20, p80, len(samples))


def time_in_turns(
    calls: Mapping[Key, Call], threads: int = 1, seconds: float = 2.0, cpu_time: bool = False
) -> dict[Key, Times]:
    """Return the time of each call, up to its result: a GPU has finished.

    A sample is the mean of a block of calls, of about 10 ms if calls are short. The calls take turns, so that
    a disturbance of the machine affects all of them. threads: of the CPU. seconds: approximate time for all
    samples of a call; each call gets 5 to 30 samples. cpu_time: count the CPU time of this process, which
    leaves out the turns of other processes on a busy machine.
    """
    clock = time.process_time if cpu_time else timer
    timers = {
        key: Timer("call()", timer=clock, globals={"call": call}, num_threads=threads)
        for key, call in calls.items()
    }
    blocks: dict[Key, int] = {}
    for key, one in timers.items():
        one.timeit(_WARM_CALLS)
        blocks[key] = one.blocked_autorange(min_run_time=_BLOCK_SECONDS).number_per_run
    samples: dict[Key, list[float]] = {key: [] for key in calls}
    began = time.perf_counter()
    for turn in range(_ROUNDS):
        if turn >= _FEWEST_ROUNDS and time.perf_counter() - began > seconds * len(calls):
            break
        for key, one in timers.items():
            samples[key].append(one.timeit(blocks[key]).mean)
    return {key: summarize(taken) for key, taken in samples.items()}
