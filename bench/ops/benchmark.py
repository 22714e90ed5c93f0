"""One run of `lensbox bench ops`."""

from collections.abc import Sequence
from functools import cache

from lensbox.bench import OPS_GROUPS
from lensbox.bench.machine import copy_bandwidth
from lensbox.bench.ops.cases import all_cases
from lensbox.bench.ops.exercise import exercise_table, run_exercise
from lensbox.bench.ops.figures import DETAILS, RATIOS
from lensbox.bench.ops.workload import make_case
from lensbox.bench.report import Options, Report
from lensbox.bench.runner import Effort, UnavailableError, WrongAnswerError, run_case

EFFORT = Effort()
QUICK = Effort(rounds=9, sample_seconds=0.005, figure_seconds=0.5, quick=True)


def run(options: Options, only: Sequence[str] = ()) -> Report:
    """Run groups of cases, all by default. Say each table as it is measured and keep the files up to date."""
    bandwidth = cache(copy_bandwidth)
    report = Report.start(
        "ops", options, ("torchvision", "triton"), bandwidth(options.device, options.threads)
    )
    cases = all_cases(options.device, options.quick, options.threads)
    for group in only or OPS_GROUPS:
        if group == "exercise":
            try:
                report.show(exercise_table(run_exercise(options.device, options.quick)))
            except (UnavailableError, WrongAnswerError, RuntimeError) as error:
                report.notes.append(f"exercise: {error}")
            continue
        for case in (case for case in cases if case.group == group):
            try:
                speed = bandwidth(case.device, options.threads)
                report.add(run_case(make_case(case), QUICK if options.quick else EFFORT, speed))
            except RuntimeError as error:  # such as out of memory
                report.notes.append(f"{case.title}: {error}")
    report.finish((ratio.figure(cases, report) for ratio in RATIOS), DETAILS)
    return report
