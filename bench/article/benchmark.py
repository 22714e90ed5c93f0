"""One run of `lensbox bench article` from beginning to end."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lensbox.bench.article import article_report
from lensbox.bench.article.chart import write_chart
from lensbox.bench.article.results import ArticleReport, RowResult, write_article_csv
from lensbox.bench.article.rows import ROWS, Row
from lensbox.bench.article.step import PhaseSampler, TrainingStep
from lensbox.bench.article.subject import ARTICLE, FOR_A_CPU, Scale, Subject, make_subject
from lensbox.bench.article.targets import SLOTS
from lensbox.bench.article.trace import trace_folder, write_trace
from lensbox.bench.check import check_loss
from lensbox.bench.comparison import clock_of
from lensbox.bench.environment import environment
from lensbox.bench.inputs import make_loss_batch
from lensbox.bench.measurement import Effort, failure_note
from lensbox.bench.peers.peer import UnavailableError
from lensbox.bench.threads import cpu_threads
from lensbox.bench.timing import (
    Clock,
    Sampler,
    Series,
    complete_sampler,
    find_pace,
    interleave,
    summarize,
)
from lensbox.common.files import atomic_write
from lensbox.runtime.freed_memory import keep_freed_memory

CPU_NOTE = (
    "A CPU runs the experiment scaled down: a small batch, a small net in float32, not compiled, nothing to "
    "copy. Its figures cannot be held against the article's."
)
_PACKAGES = ("triton",)
_EFFORT = Effort(rounds=20, figure_seconds=5.0)
_QUICK = Effort(rounds=5, figure_seconds=0.5, leave_out_slow_starts=True)
_WARM_UP_STEPS = 2
PHASED, WHOLE = "phase by phase", "as a whole"


@dataclass(frozen=True)
class Options:
    """What is to be run.

    device: "cpu" or "cuda".
    output: folder for the files, or None.
    trace: folder for traces, or None.
    quick: fewer samples, and no torch.compile.
    batch: samples; None is the article's 1,024 on a GPU and fewer on the CPU.
    threads: of the CPU.
    """

    device: str
    output: Path | None = None
    trace: Path | None = None
    quick: bool = False
    batch: int | None = None
    threads: int = 1


def run(options: Options, say: Callable[[str], None]) -> ArticleReport:
    """Checks and times all rows; says what it found, and writes it to files where asked to."""
    keep_freed_memory()
    device = torch.device(options.device)
    on_gpu = device.type == "cuda"
    scale = _scale(options)
    report = ArticleReport(environment(device, _PACKAGES), scale, notes=[] if on_gpu else [CPU_NOTE])
    say(article_report.beginning(report))
    with cpu_threads(0 if on_gpu else options.threads):
        subject = make_subject(device, scale)
        clock = time.perf_counter if on_gpu else clock_of(options.threads)
        report.rows = measure(ROWS, subject, _QUICK if options.quick else _EFFORT, clock, options.trace)
    report.gpu_bytes = torch.cuda.max_memory_allocated() if on_gpu else None
    if options.output is not None:
        _write(options.output, report)
    say(article_report.text(report))
    return report


def _scale(options: Options) -> Scale:
    scale = ARTICLE if options.device == "cuda" else FOR_A_CPU
    return dataclasses.replace(
        scale, batch=options.batch or scale.batch, compiled=scale.compiled and not options.quick
    )


@dataclass(frozen=True)
class _Timed:
    """How a row is sampled. step: None without a gradient."""

    phases: PhaseSampler
    step: Sampler | None
    rounds: int


def measure(
    rows: Sequence[Row[Any]], subject: Subject, effort: Effort, clock: Clock, traces: Path | None = None
) -> list[RowResult]:
    """Times every row that can run and is right, in turn. With `traces`, each is traced there first."""
    timed: dict[str, _Timed] = {}
    failures: dict[str, str] = {}
    for row in rows:
        try:
            timed[row.name] = _prepare(row, subject, effort, clock, traces)
        except Exception as error:  # one row's failure must not cost the figures of the others
            failures[row.name] = failure_note(error)
    series = {(name, PHASED): Series(one.phases, one.rounds) for name, one in timed.items()}
    series |= {(name, WHOLE): Series(one.step, one.rounds) for name, one in timed.items() if one.step}

    def failed(key: tuple[str, str], error: Exception) -> None:
        failures[key[0]] = failure_note(error)

    samples = interleave(series, failed)
    results = []
    for row in rows:
        if row.name in failures:
            results.append(RowResult(row.name, row.published, note=failures[row.name]))
            continue
        one, whole = timed[row.name], samples.get((row.name, WHOLE))
        # The phases of steps that warmed up go before.
        phases = {name: summarize(times[-one.rounds :]) for name, times in one.phases.samples.items()}
        step = None if whole is None else summarize(whole)
        results.append(RowResult(row.name, row.published, phases, step, row.no_backward))
    return results


def _prepare(row: Row[Any], subject: Subject, effort: Effort, clock: Clock, traces: Path | None) -> _Timed:
    if row.slow_to_start and effort.leave_out_slow_starts:
        raise UnavailableError("left out by --quick: it compiles")
    loss = row.load(subject.device)
    _check(row, loss, subject)
    step = TrainingStep(subject, row.layout, loss, has_gradient=not row.no_backward)
    for _ in range(_WARM_UP_STEPS):
        step.run()
    if traces is not None:
        write_trace(trace_folder(traces, row.name), step, subject.synchronize)

    def run(_: int) -> None:
        step.run()

    rounds = effort.rounds_at(find_pace(0.0, run, subject.synchronize, 1, clock))
    return _Timed(
        PhaseSampler(step, subject.synchronize, clock),
        None if row.no_backward else complete_sampler(run, 1, subject.synchronize, clock),
        rounds,
    )


def _check(row: Row[Any], loss: Callable[[Tensor, Any], Tensor], subject: Subject) -> None:
    """Compares with the float64 reference, on boxes that are none of the net's: at first it predicts inverted
    ones, about which the article's formula and the reference disagree. Raises WrongAnswerError."""
    dtype = torch.bfloat16 if subject.scale.autocast else torch.float32
    batch = make_loss_batch(subject.scale.batch, SLOTS, None, dtype, torch.uint8, subject.device)
    targets = row.layout.move(row.layout.collate(batch.host_boxes), subject.device)
    check_loss(lambda _, pred: loss(pred, targets), batch, with_gradient=not row.no_backward)


def _write(output: Path, report: ArticleReport) -> None:
    write_article_csv(output / "article.csv", report)
    try:
        if any(result.phases for result in report.rows):
            write_chart(output / "article.png", report)
    except ModuleNotFoundError as error:
        report.notes.append(f"No chart: the Python package {error.name!r} is not installed.")
    atomic_write(output / "article.md", article_report.markdown(report).encode())
