"""One run of the benchmark from beginning to end."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from lensbox.bench import ops_report
from lensbox.bench.bandwidth import copy_bandwidth
from lensbox.bench.cases import Case, all_cases
from lensbox.bench.check import WrongAnswerError
from lensbox.bench.environment import environment
from lensbox.bench.exercise import run_exercise
from lensbox.bench.groups import EXERCISE, GROUPS
from lensbox.bench.measurement import QUICK, Effort, run_case
from lensbox.bench.ops_report import Report
from lensbox.bench.peers.peer import UnavailableError
from lensbox.bench.plots import write_plots
from lensbox.bench.results import write_csv
from lensbox.bench.threads import cpu_threads
from lensbox.common.files import atomic_write
from lensbox.runtime.freed_memory import keep_freed_memory


@dataclass(frozen=True)
class Options:
    """What is to be run.

    device: "cpu" or "cuda".
    output: folder for the files, or None.
    only: groups of cases; all where empty.
    threads: of the CPU.
    time_limit: seconds after which nothing new is begun, or None.
    """

    device: str
    output: Path | None = None
    quick: bool = False
    only: Sequence[str] = ()
    threads: int = 1
    time_limit: float | None = None


def run(options: Options, say: Callable[[str], None]) -> Report:
    """Runs what is asked for, says each table when it is there, and keeps the files up to date meanwhile."""
    started = time.monotonic()
    keep_freed_memory()
    speeds: dict[str, float] = {}

    def speed(device: str) -> float:
        if device not in speeds:
            speeds[device] = _copy_bandwidth(device, options.threads)
        return speeds[device]

    packages = ("torchvision", "triton")
    found = Report(environment(torch.device(options.device), packages, speed(options.device)))
    say(ops_report.environment_text(found.environment))
    effort = QUICK if options.quick else Effort()
    for group in options.only or GROUPS:
        for part in _parts(group, options):
            if options.time_limit is not None and time.monotonic() - started > options.time_limit:
                name = EXERCISE if part is None else part.title
                found.notes.append(f"{name}: the time limit of {options.time_limit:g} s was over")
                continue
            if part is None:
                say(_run_exercise(options, found))
            else:
                say(_run_case(part, effort, speed(part.device), found))
            _write(options.output, found)
    say("Figures\n" + ops_report.figures_text(found))
    _draw(options.output, found)
    _write(options.output, found)
    for note in found.notes:
        say(f"Note: {note}")
    return found


def _parts(group: str, options: Options) -> list[Case | None]:
    """The cases of a group; None stands for the exercise, which is not made of cases."""
    if group == EXERCISE:
        return [None]
    cases = all_cases(options.device, options.quick, options.threads)
    return [case for case in cases if case.group == group]


def _run_case(case: Case, effort: Effort, copy_bytes_per_second: float, found: Report) -> str:
    try:
        rows = run_case(case, effort, copy_bytes_per_second)
    except RuntimeError as error:  # out of memory, say: the other cases may still fit
        found.notes.append(f"{case.title}: {error}")
        return f"{case.title}: {error}"
    found.rows += rows
    return ops_report.case_text(rows)


def _run_exercise(options: Options, found: Report) -> str:
    if options.device != "cuda":
        note = "it runs on a GPU"
    else:
        try:
            found.points += run_exercise(options.quick)
            return f"Exercise\n{ops_report.exercise_text(found.points)}"
        except (UnavailableError, WrongAnswerError, RuntimeError) as error:
            note = str(error)
    found.notes.append(f"{EXERCISE}: {note}")
    return f"Exercise: {note}"


def _write(output: Path | None, found: Report) -> None:
    if output is None:
        return
    write_csv(output / "ops.csv", found.rows)
    atomic_write(output / "results.md", ops_report.markdown(found).encode())


def _draw(output: Path | None, found: Report) -> None:
    if output is None:
        return
    try:
        write_plots(output, found.rows, found.points)
    except ModuleNotFoundError as error:
        found.notes.append(f"plots: the Python package {error.name!r} is not installed")


def _copy_bandwidth(device: str, threads: int) -> float:
    with cpu_threads(threads):
        return copy_bandwidth(torch.device(device))
