"""One run of `lensbox bench ops`."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from lensbox.bench.machine import copy_bandwidth, describe_machine
from lensbox.bench.ops.cases import EXERCISE, GROUPS, OpsCase, all_cases
from lensbox.bench.ops.exercise import Point, exercise_table, run_exercise
from lensbox.bench.ops.figures import DETAILS, RATIOS
from lensbox.bench.ops.workload import make_case
from lensbox.bench.report import Report
from lensbox.bench.runner import Effort, UnavailableError, WrongAnswerError, run_case
from lensbox.common.machine import keep_freed_memory

EFFORT = Effort()
QUICK = Effort(rounds=9, sample_seconds=0.005, figure_seconds=0.5, quick=True)


@dataclass(frozen=True)
class Options:
    """device: "cpu" or "cuda". output: folder for the files, or None. only: groups of cases; all if empty.

    threads: of the CPU. time_limit: seconds after which nothing new is begun, or None.
    """

    device: str
    output: Path | None = None
    quick: bool = False
    only: Sequence[str] = ()
    threads: int = 1
    time_limit: float | None = None


def run(options: Options, say: Callable[[str], None]) -> Report:
    """Run the requested groups. Says each table as it is measured and keeps the files up to date."""
    started = time.monotonic()
    keep_freed_memory()
    speed = cache(partial(_copy_bandwidth, options.threads))
    machine = describe_machine(options.device, ("torchvision", "triton"), speed(options.device))
    report = Report("ops", machine, say, options.output)
    report.begin()
    cases = all_cases(options.device, options.quick, options.threads)
    for group in options.only or GROUPS:
        parts: list[OpsCase | None] = [case for case in cases if case.group == group]
        for case in parts if group != EXERCISE else [None]:
            title = EXERCISE if case is None else case.title
            if options.time_limit is not None and time.monotonic() - started > options.time_limit:
                report.notes.append(f"{title}: the time limit of {options.time_limit:g} s was over")
                continue
            try:
                if case is None:
                    report.show(exercise_table(_run_exercise(options)))
                else:
                    effort = QUICK if options.quick else EFFORT
                    report.add(run_case(make_case(case), effort, speed(case.device)))
            except (UnavailableError, WrongAnswerError, RuntimeError) as error:  # such as out of memory
                report.notes.append(f"{title}: {error}")
    report.finish((ratio.figure(cases, report) for ratio in RATIOS), DETAILS)
    return report


def _copy_bandwidth(threads: int, device: str) -> float:
    return copy_bandwidth(device, threads)


def _run_exercise(options: Options) -> list[Point]:
    if options.device != "cuda":
        raise UnavailableError("it runs on a GPU")
    return run_exercise(options.quick)
