"""`lensbox bench article` on a batch small enough for a test: rows, phases, tables, files, traces."""

import csv
import gzip
import itertools
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lensbox.bench.article import article_report, benchmark, published, rows
from lensbox.bench.article.benchmark import measure
from lensbox.bench.article.results import ArticleReport, RowResult
from lensbox.bench.article.rows import ROWS, Row
from lensbox.bench.article.step import PHASES, PhaseSampler, TrainingStep
from lensbox.bench.article.subject import ARTICLE, FOR_A_CPU, Subject, make_subject
from lensbox.bench.article.targets import LISTED, PACKED, PADDED
from lensbox.bench.check import check_loss
from lensbox.bench.cli import EXIT_WRONG
from lensbox.bench.inputs import make_loss_batch
from lensbox.bench.measurement import Effort
from lensbox.bench.peers import eager
from lensbox.bench.peers.peer import PaddedLoss, UnavailableError
from lensbox.bench.timing import Summary
from lensbox.common.errors import ExitCode
from lensbox.common.main import main

TINY = replace(FOR_A_CPU, batch=3, channels=(1, 1, 1, 1), hidden=2)
SHORT = Effort(rounds=3, figure_seconds=0.0, leave_out_slow_starts=True)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def subject() -> Subject:
    return make_subject(CPU, TINY)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "FOR_A_CPU", TINY)
    monkeypatch.setattr(benchmark, "_QUICK", SHORT)


def quick_run(*more: str) -> int:
    return main(["bench", "article", "--device", "cpu", "--quick", *more])


@pytest.mark.usefixtures("tiny")
def test_a_quick_run_writes_tables_and_traces(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out, traces = tmp_path / "out", tmp_path / "traces"
    assert quick_run("--output", str(out), "--trace", str(traces)) == ExitCode.GOOD
    printed, errors = capfd.readouterr()
    assert errors == ""  # the profiler does not talk
    for part in ("A CPU runs the experiment scaled down", "batch 3, ", "article's calc loss", "images/s"):
        assert part in printed
    assert "- Triton: not available: Triton compiles for GPUs" in printed

    assert {path.name for path in out.iterdir()} - {"article.png"} == {"article.csv", "article.md"}
    with (out / "article.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert list(dict.fromkeys(line["row"] for line in lines)) == [row.name for row in ROWS]
    jagged = {line["phase"]: line for line in lines if line["row"] == rows.LENSBOX_JAGGED}
    assert list(jagged) == [*PHASES, "whole step"]
    assert all(int(line["samples"]) == 3 and float(line["median_ms"]) >= 0 for line in jagged.values())
    assert float(jagged["whole step"]["images_per_second"]) > 0
    (loop,) = [line for line in lines if (line["row"], line["phase"]) == ("per-sample loop", "calc loss")]
    assert loop["published_ms"] == "938"
    markdown = (out / "article.md").read_text()
    assert "| Lensbox, jagged |" in markdown
    assert "A CPU runs the experiment scaled down" in markdown

    (trace,) = (traces / "lensbox_padded").iterdir()
    assert trace.name.endswith(".pt.trace.json.gz")  # what TensorBoard's plugin looks for
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    assert set(PHASES) < {event.get("name") for event in events}


@pytest.mark.usefixtures("tiny")
def test_the_chart_has_a_bar_for_each_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib import pyplot

    from lensbox.bench.article.chart import write_chart

    monkeypatch.setattr(pyplot, "close", lambda figure: None)
    write_chart(tmp_path / "article.png", example_report())
    figure = pyplot.gcf()
    monkeypatch.undo()
    try:
        assert [axis.get_title() for axis in figure.axes] == list(PHASES)
        assert [len(axis.patches) for axis in figure.axes] == [3, 3, 3, 1, 1]
        assert {axis.get_xscale() for axis in figure.axes} == {"log"}
        assert (tmp_path / "article.png").stat().st_size > 0
    finally:
        pyplot.close(figure)


def test_rows_that_the_cpu_has_agree_with_the_reference(subject: Subject) -> None:
    results = {result.row: result for result in measure(ROWS, subject, SHORT, itertools.count().__next__)}
    ran = {name for name, result in results.items() if result.phases}
    own = set(rows.OWN)
    assert ran == {"per-sample loop", "concatenation", "padding"} | own
    assert all(results[name].step for name in ran)


@pytest.mark.gpu
@pytest.mark.parametrize("row", [row for row in ROWS if not row.slow_to_start], ids=lambda row: row.name)
def test_every_row_agrees_with_the_reference_on_a_gpu(row: Row[Any]) -> None:
    device = torch.device("cuda")
    batch = make_loss_batch(65, 256, None, torch.bfloat16, torch.uint8, device)
    try:
        loss = row.load(device)
    except UnavailableError as error:
        pytest.skip(str(error))
    targets = row.layout.move(row.layout.pin(row.layout.collate(batch.host_boxes)), device)
    check_loss(lambda _, pred: loss(pred, targets), batch, with_gradient=not row.no_backward)


@pytest.mark.gpu
@pytest.mark.filterwarnings("default")  # what torch warns of in the first row would be that row's failure
def test_a_quick_run_on_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(benchmark, "ARTICLE", replace(TINY, autocast=True, compiled=True))
    monkeypatch.setattr(benchmark, "_QUICK", SHORT)
    out, traces = tmp_path / "out", tmp_path / "traces"
    arguments = ["--device", "cuda", "--quick", "--output", str(out), "--trace", str(traces)]
    assert main(["bench", "article", *arguments]) == ExitCode.GOOD
    printed = capsys.readouterr().out
    assert "eager, bf16 autocast" in printed
    assert "GB of the GPU's memory were in use" in printed
    with (out / "article.csv").open(newline="") as file:
        ran = {line["row"] for line in csv.DictReader(file) if line["phase"] == "calc loss"}
    assert {"per-sample loop", "concatenation", "padding", *rows.OWN} <= ran
    (trace,) = (traces / "lensbox_padded").iterdir()
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    assert any(event.get("cat") == "kernel" for event in events)


def test_layouts_hold_the_boxes_of_all_samples(subject: Subject) -> None:
    boxes = subject.boxes
    assert len(boxes) == TINY.batch
    assert all(of_sample.dtype == torch.uint8 for of_sample in boxes)
    listed, padded, packed = LISTED.collate(boxes), PADDED.collate(boxes), PACKED.collate(boxes)
    assert len(listed) == TINY.batch
    assert padded.shape == (TINY.batch, 256, 4)
    assert torch.equal(padded[padded[..., 3] != 0], torch.cat(boxes))
    assert torch.equal(packed.values, torch.cat(boxes))
    assert packed.offsets.tolist() == [0, *torch.tensor([len(b) for b in boxes]).cumsum(0).tolist()]


def test_a_step_has_all_phases_and_leaves_the_weights_alone(subject: Subject) -> None:
    parameters = [p for group in subject.optimizer.param_groups for p in group["params"]]
    before = [parameter.detach().clone() for parameter in parameters]
    done: list[str] = []

    def loss(pred: Tensor, target: Tensor) -> Tensor:
        assert pred.requires_grad
        assert target.shape == pred.shape
        done.append("loss")
        return pred.square().sum()

    step = TrainingStep(subject, PADDED, loss, has_gradient=True)
    assert [name for name, _ in step.phases] == list(PHASES)
    step.run()
    assert done == ["loss"]
    assert all(parameter.grad is not None for parameter in parameters)
    assert all(torch.equal(now, then) for now, then in zip(parameters, before, strict=True))


def test_without_a_gradient_a_step_ends_with_the_loss(subject: Subject) -> None:
    def loss(pred: Tensor, _: Tensor) -> Tensor:
        assert not pred.requires_grad
        return pred.sum()

    step = TrainingStep(subject, PADDED, loss, has_gradient=False)
    assert [name for name, _ in step.phases] == ["copy data", "forward", "calc loss"]


def test_each_phase_is_timed_up_to_its_result(subject: Subject) -> None:
    now = itertools.count()
    order: list[str] = []

    def synchronize() -> None:
        order.append("wait")

    def loss(pred: Tensor, _: Tensor) -> Tensor:
        order.append("loss")
        return pred.sum()

    sampler = PhaseSampler(
        TrainingStep(subject, PADDED, loss, has_gradient=True), synchronize, lambda: float(next(now))
    )
    assert sampler() == 5e6
    assert sampler.samples == {phase: [1e6] for phase in PHASES}
    assert order == ["wait", "wait", "wait", "loss", "wait", "wait", "wait"]


def _off_by_one(_: torch.device) -> PaddedLoss:
    return lambda pred, target: pred.float().mean() * 0 + 7


@pytest.mark.usefixtures("tiny")
def test_a_wrong_answer_of_our_own_is_not_timed_and_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong: Row[Tensor] = Row(rows.LENSBOX, PADDED, _off_by_one)
    monkeypatch.setattr(benchmark, "ROWS", [wrong])
    assert quick_run("--batch", "2") == EXIT_WRONG
    printed = capsys.readouterr().out
    assert "batch 2, " in printed
    assert "- Lensbox, padded: WRONG: the loss is off" in printed


@pytest.mark.parametrize("good_calls", [5, 6, 9])
def test_a_row_that_fails_while_it_is_timed_leaves_the_others(subject: Subject, good_calls: int) -> None:
    calls = 0

    def loss(pred: Tensor, target: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls > good_calls:
            raise RuntimeError("out of memory")
        return eager.padded_loss(pred, target)

    broken = Row("broken", PADDED, lambda _: loss)
    good = Row("good", PADDED, lambda _: eager.padded_loss)
    first, second = measure([broken, good], subject, SHORT, time.perf_counter)
    assert (first.phases, first.step) == ({}, None)
    assert first.note == "failed: RuntimeError: out of memory"
    assert second.step is not None
    assert set(second.phases) == set(PHASES)


def test_a_run_without_figures_still_tells_why(tmp_path: Path) -> None:
    failed = RowResult("padding", published.PADDING, note="failed: RuntimeError: out of memory")
    report = ArticleReport([("torch", "2")], FOR_A_CPU, [failed])
    benchmark._write(tmp_path, report)
    assert "out of memory" in (tmp_path / "article.md").read_text(encoding="utf-8")


def test_without_a_gpu_cuda_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["bench", "article", "--device", "cuda"]) == ExitCode.USAGE
    assert "--device cuda: PyTorch finds no NVIDIA GPU" in capsys.readouterr().err


def summary(milliseconds: float) -> Summary:
    return Summary(milliseconds * 1e3, milliseconds * 900, milliseconds * 1100, 9)


def example_report() -> ArticleReport:
    phases = {"copy data": summary(1.5), "forward": summary(20), "calc loss": summary(0.03)}
    every = {**phases, "backward": summary(40), "optimizer": summary(5)}
    return ArticleReport(
        [("date", "today")],
        ARTICLE,
        [
            RowResult("kernel", published.KERNEL, phases, note="forward only: it has no derivative"),
            RowResult(rows.LENSBOX, None, every, summary(64)),
            RowResult("loop", published.PER_SAMPLE, step=summary(1024), note="not available: a reason"),
        ],
    )


def test_the_article_s_figures_stand_beside() -> None:
    _, lines = article_report.phase_table(example_report())
    assert lines[0][1:] == [
        *("1.50 (1.35-1.65)", "20.0 (18.0-22.0)", "0.030 (0.027-0.033)", "", ""),
        *("5.69", "133", "0.629"),
    ]
    assert lines[1][-3:] == ["", "", ""]
    assert len(lines) == 2


def test_images_per_second_are_of_the_whole_step() -> None:
    _, lines = article_report.step_table(example_report())
    assert [line[2:] for line in lines] == [["16,000", "1.00"], ["1,000", "16.0"]]
    assert "- loop: not available: a reason" in article_report.text(example_report())
