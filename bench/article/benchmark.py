"""One run of `lensbox bench article`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from functools import partial
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
from lensbox.bench.ops.check import check_loss
from lensbox.bench.ops.inputs import make_loss_batch
from lensbox.bench.report import Options, Report, Table, number, spread
from lensbox.bench.runner import Case, Effort, MakeRun, Measure, Row, Way, always, run_case
from lensbox.bench.timing import Sampler, Summary, summarize

CPU_NOTE = (
    "A CPU runs the experiment scaled down: a small batch, a small net in float32, not compiled, nothing to "
    "copy. Its figures cannot be held against the article's."
)
WHOLE_STEP = "whole step"
EFFORT = Effort(rounds=20, figure_seconds=5.0)
QUICK = Effort(rounds=5, figure_seconds=0.5, quick=True)
_PHASES = "phases"


def run(options: Options, batch: int | None = None) -> Report:
    """Check and time all approaches, and compare them with the published figures. batch: samples."""
    on_gpu = options.device == "cuda"
    scale = ARTICLE if on_gpu else FOR_A_CPU
    compiled = scale.compiled and not options.quick
    scale = replace(scale, batch=batch or scale.batch, compiled=compiled)
    report = Report.start("article", options, ("triton",))
    report.environment.append(("scale", str(scale)))
    options.say(f"scale: {scale}")
    report.notes += [] if on_gpu else [CPU_NOTE]
    threads = 0 if on_gpu else options.threads
    experiment = make_experiment(torch.device(options.device), scale)
    report.rows = measure(APPROACHES, experiment, QUICK if options.quick else EFFORT, threads)
    report.show(phase_table(report.rows))
    report.show(step_table(report.rows))
    if on_gpu:
        memory = torch.cuda.max_memory_allocated() / 1e9
        report.notes.append(f"At most {memory:.1f} GB of the GPU's memory were in use.")
    report.finish([])
    return report


def measure(
    approaches: Sequence[Approach[Any]], experiment: Experiment, effort: Effort, threads: int = 1
) -> list[Row]:
    """Check and time every approach that can run: its phases, and whole steps if it has a gradient."""
    device = experiment.device
    clock = time.process_time if device.type == "cpu" and threads == 1 else time.perf_counter
    whole: Measure = "call" if device.type == "cpu" else "complete"
    phases: dict[str, PhaseSampler] = {}

    def prepare(approach: Approach[Any], samplers: MutableMapping[str, Sampler]) -> MakeRun:
        loss = approach.load(device)
        _check(approach, loss, experiment)
        step = TrainingStep(experiment, approach.layout, loss, has_gradient=not approach.no_backward)
        samplers[_PHASES] = phases[approach.name] = PhaseSampler(step, experiment.synchronize, clock)
        return always(step.run)

    ways = []
    for approach in approaches:
        samplers: dict[str, Sampler] = {}
        ways.append(
            Way(
                approach.name,
                partial(prepare, approach, samplers),
                () if approach.no_backward else (whole,),
                images=experiment.scale.batch,
                own=approach.name in OWN,
                slow_to_start=approach.slow_to_start,
                samplers=samplers,
            )
        )
    timed = run_case(Case("step", ways, device.type, threads, cpu_time=True), effort)
    notes = {approach.name: approach.no_backward for approach in approaches}
    rows = []
    for row in sorted(timed, key=lambda row: row.measure != _PHASES):
        if row.measure == _PHASES and row.summary is not None:
            # The first sample warms up and is not counted.
            for phase, taken in phases[row.way].samples.items():
                rows.append(Row("step", row.way, phase, summarize(taken[1:]), note=notes[row.way]))
        else:
            rows.append(replace(row, measure=WHOLE_STEP if row.measure else ""))
    return rows


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
