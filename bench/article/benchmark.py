"""One run of `lensbox bench article`."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from lensbox.bench.article.approaches import (
    APPROACHES,
    LENSBOX,
    OWN,
    PHASES,
    PUBLISHED_ON,
    PUBLISHED_PHASES,
    SLOTS,
    Approach,
)
from lensbox.bench.article.step import (
    ARTICLE,
    FOR_A_CPU,
    Experiment,
    PhaseSampler,
    TrainingStep,
    make_experiment,
)
from lensbox.bench.machine import cpu_threads
from lensbox.bench.ops.check import check_loss
from lensbox.bench.ops.inputs import make_loss_batch
from lensbox.bench.report import Options, Report, Table, number, spread
from lensbox.bench.runner import Effort, Row, UnavailableError, failure_note
from lensbox.bench.timing import (
    Clock,
    Sampler,
    Series,
    Summary,
    complete_sampler,
    find_pace,
    interleave,
    summarize,
)

CPU_NOTE = (
    "A CPU runs the experiment scaled down: a small batch, a small net in float32, not compiled, nothing to "
    "copy. Its figures cannot be held against the article's."
)
WHOLE_STEP = "whole step"
EFFORT = Effort(rounds=20, figure_seconds=5.0)
QUICK = Effort(rounds=5, figure_seconds=0.5, quick=True)
_WARM_UP_STEPS = 2


def run(options: Options, batch: int | None = None) -> Report:
    """Check and time all approaches, and compare them with the published figures. batch: samples."""
    on_gpu = options.device == "cuda"
    scale = ARTICLE if on_gpu else FOR_A_CPU
    compiled = scale.compiled and not options.quick
    scale = dataclasses.replace(scale, batch=batch or scale.batch, compiled=compiled)
    report = Report.start("article", options, ("triton",))
    report.environment.append(("scale", str(scale)))
    options.say(f"scale: {scale}")
    report.notes += [] if on_gpu else [CPU_NOTE]
    with cpu_threads(0 if on_gpu else options.threads):
        experiment = make_experiment(torch.device(options.device), scale)
        one_thread = not on_gpu and options.threads == 1
        clock = time.process_time if one_thread else time.perf_counter
        effort = QUICK if options.quick else EFFORT
        report.rows = measure(APPROACHES, experiment, effort, clock)
    report.show(phase_table(report.rows))
    report.show(step_table(report.rows))
    if on_gpu:
        memory = torch.cuda.max_memory_allocated() / 1e9
        report.notes.append(f"At most {memory:.1f} GB of the GPU's memory were in use.")
    report.finish([])
    return report


def measure(
    approaches: Sequence[Approach[Any]],
    experiment: Experiment,
    effort: Effort,
    clock: Clock,
) -> list[Row]:
    """Time every approach that can run and is right, in turn."""
    samplers: dict[str, PhaseSampler] = {}
    series: dict[tuple[str, str], Series] = {}
    rows: dict[str, list[Row]] = {}

    def failed(key: tuple[str, str], error: Exception) -> None:
        name = key[0]
        rows[name] = [Row("step", name, "", note=failure_note(error), own=name in OWN)]

    for approach in approaches:
        try:
            phases, step, rounds = _prepare(approach, experiment, effort, clock)
        except Exception as error:  # one approach's failure must not cost the figures of the others
            failed((approach.name, ""), error)
            continue
        samplers[approach.name] = phases
        series[approach.name, ""] = Series(phases, rounds)
        if step is not None:
            series[approach.name, WHOLE_STEP] = Series(step, rounds)
    samples = interleave(series, failed)
    batch = experiment.scale.batch
    for approach in approaches:
        name = approach.name
        if name in rows:
            continue
        rounds = series[name, ""].rounds
        # The first sample of a series warms up and is not counted.
        times = samplers[name].samples.items()
        note = approach.no_backward
        rows[name] = [
            Row("step", name, phase, summarize(taken[-rounds:]), note=note) for phase, taken in times
        ]
        if whole := samples.get((name, WHOLE_STEP)):
            rows[name].append(Row("step", name, WHOLE_STEP, summarize(whole), images=batch))
    return [row for approach in approaches for row in rows[approach.name]]


def phase_table(rows: Sequence[Row]) -> Table:
    """Return a line per approach that ran, with the article's figures beside it."""
    by_way = _by_way(rows)
    lines = []
    for approach in APPROACHES:
        if times := by_way.get(approach.name):
            published = [approach.published.get(phase) for phase in PUBLISHED_PHASES]
            cells = ["" if value is None else f"{value:g}" for value in published]
            lines.append([approach.name, *(_milliseconds(times.get(phase)) for phase in PHASES), *cells])
    header = ["row", *PHASES, *(f"article's {phase}" for phase in PUBLISHED_PHASES)]
    notes = list(dict.fromkeys(f"{row.way}: {row.note}" for row in rows if row.note))
    title = f"Phases, ms: median (20th-80th percentile); the article's own: {PUBLISHED_ON}"
    return Table(title, header, lines, notes)


def step_table(rows: Sequence[Row]) -> Table:
    """Return time and images per second of whole steps, and Lensbox's images per second over each."""
    steps = {row.way: row for row in rows if row.measure == WHOLE_STEP and row.summary is not None}
    ours = steps[LENSBOX].summary if LENSBOX in steps else None
    lines = []
    for name, row in steps.items():
        assert row.summary is not None
        times = "" if ours is None else number(row.summary.median / ours.median)
        images = number(row.images * 1e6 / row.summary.median)
        lines.append([name, _milliseconds(row.summary), images, times])
    title = "The whole training step, without a wait between phases"
    return Table(title, ["row", "step, ms", "images/s", f"{LENSBOX}: times as many"], lines)


def _prepare(
    approach: Approach[Any], experiment: Experiment, effort: Effort, clock: Clock
) -> tuple[PhaseSampler, Sampler | None, int]:
    """Return the samplers of phases and of whole steps, and the number of samples."""
    if approach.slow_to_start and effort.quick:
        raise UnavailableError("left out by --quick: it compiles")
    loss = approach.load(experiment.device)
    _check(approach, loss, experiment)
    step = TrainingStep(experiment, approach.layout, loss, has_gradient=not approach.no_backward)
    for _ in range(_WARM_UP_STEPS):
        step.run()

    def run(_: int) -> None:
        step.run()

    rounds = effort.rounds_at(find_pace(0.0, run, experiment.synchronize, 1, clock))
    whole = None if approach.no_backward else complete_sampler(run, 1, experiment.synchronize, clock)
    return PhaseSampler(step, experiment.synchronize, clock), whole, rounds


def _check(approach: Approach[Any], loss: Callable[[Tensor, Any], Tensor], experiment: Experiment) -> None:
    """Compare with the float64 reference, on made-up boxes: an untrained net predicts inverted ones, about
    which the article's formula and the reference disagree. Raises WrongAnswerError."""
    dtype = torch.bfloat16 if experiment.scale.autocast else torch.float32
    batch = make_loss_batch(experiment.scale.batch, SLOTS, None, dtype, torch.uint8, experiment.device)
    targets = approach.layout.move(approach.layout.collate(batch.host_boxes), experiment.device)
    check_loss(lambda _, pred: loss(pred, targets), batch, with_gradient=not approach.no_backward)


def _by_way(rows: Sequence[Row]) -> Mapping[str, dict[str, Summary]]:
    found: dict[str, dict[str, Summary]] = {}
    for row in rows:
        if row.summary is not None:
            found.setdefault(row.way, {})[row.measure] = row.summary
    return found


def _milliseconds(summary: Summary | None) -> str:
    if summary is None:
        return ""
    return spread(Summary(summary.median / 1e3, summary.p20 / 1e3, summary.p80 / 1e3, summary.samples))
