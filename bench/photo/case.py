"""A case: ways to do the same thing to the same photographs."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from lensbox.bench.comparison import compare
from lensbox.bench.measurement import Effort
from lensbox.bench.photo.timings import Timing
from lensbox.bench.timing import MICROSECONDS, Series


@dataclass(frozen=True)
class Way:
    """prepare: checks its answer, and says how it is sampled. useful_bytes: what the step must read and write
    whatever the way, 0 where that is of no interest."""

    step: str
    name: str
    prepare: Callable[[Effort], Series]
    useful_bytes: int = 0


@dataclass(frozen=True)
class Case:
    name: str
    ways: list[Way]


def run_case(case: Case, effort: Effort, copy_bytes_per_second: float) -> list[Timing]:
    """The figures of all ways, and for each that has none the reason."""
    outcomes = compare({index: partial(way.prepare, effort) for index, way in enumerate(case.ways)})
    timings = []
    for way, outcome in zip(case.ways, outcomes.values(), strict=True):
        share = None
        if outcome.summary is not None and way.useful_bytes:
            share = way.useful_bytes / (outcome.summary.median / MICROSECONDS) / copy_bytes_per_second
        timings.append(Timing(case.name, way.step, way.name, outcome.summary, share, outcome.note))
    return timings
