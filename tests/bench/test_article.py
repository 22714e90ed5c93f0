"""`lensbox bench article` on a tiny batch: approaches, phases, tables, files."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from lensbox.bench.article import benchmark
from lensbox.bench.article.approaches import APPROACHES, OWN, PHASES, Approach
from lensbox.bench.article.benchmark import measure, phase_table, step_table
from lensbox.bench.article.step import (
    ARTICLE,
    FOR_A_CPU,
    Experiment,
    PhaseSampler,
    TrainingStep,
    make_experiment,
)
from lensbox.bench.runner import Effort, Row
from lensbox.bench.timing import Summary
from lensbox.common.errors import ExitCode
from lensbox.common.main import main

TINY = replace(FOR_A_CPU, batch=3, channels=(1, 1, 1, 1), hidden=2)
SHORT = Effort(rounds=3, figure_seconds=0.0, quick=True)
COMMAND = ["bench", "article", "--device", "cpu", "--quick"]


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    return make_experiment(torch.device("cpu"), TINY)


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "FOR_A_CPU", TINY)
    monkeypatch.setattr(benchmark, "QUICK", SHORT)


def named(name: str) -> Approach[Any]:
    (found,) = [approach for approach in APPROACHES if approach.name == name]
    return found


def test_a_quick_run_writes_its_files(quick_run: Callable[..., Any]) -> None:
    printed, rows, markdown = quick_run("article", benchmark)
    for part in ("A CPU runs the experiment scaled down", "batch 3, ", "article's calc loss", "images/s"):
        assert part in printed
    for name in OWN:
        measures = [row["measure"] for row in rows if row["way"] == name]
        assert measures == [*PHASES, "whole step"]
    assert "| per-sample loop |" in markdown


def test_a_wrong_loss_of_our_own_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def shifted(_: torch.device) -> Any:
        return lambda pred, target: named("padding").load(_)(pred, target) + 1

    monkeypatch.setattr(benchmark, "APPROACHES", [replace(named(OWN[0]), load=shifted), named("padding")])
    assert main(COMMAND) == ExitCode.DEFECT
    assert f"{OWN[0]}: WRONG: the loss is off" in capsys.readouterr().out


def test_approaches_share_net_batch_and_weights(experiment: Experiment) -> None:
    losses: list[float] = []
    for name in ("per-sample loop", "concatenation", "padding", *OWN):
        approach = named(name)

        def loss(pred: Tensor, targets: Any, approach: Any = approach) -> Tensor:
            value: Tensor = approach.load(experiment.device)(pred, targets)
            losses.append(float(value.detach()))
            return value

        TrainingStep(experiment, approach.layout, loss, has_gradient=True).run()
    assert losses == pytest.approx([losses[0]] * 5, rel=1e-4)


def test_each_phase_is_timed_up_to_its_result(experiment: Experiment) -> None:
    ticks = itertools.count()
    waits: list[int] = []
    approach = named("padding")
    step = TrainingStep(experiment, approach.layout, approach.load(experiment.device), has_gradient=True)
    sampler = PhaseSampler(step, lambda: waits.append(0), lambda: float(next(ticks)))
    assert sampler() == pytest.approx(5e6)
    assert sampler.samples == {phase: [pytest.approx(1e6)] for phase in PHASES}
    assert len(waits) == 6
    # Without a gradient the step ends with the loss.
    forward_only = replace(named("padding"), no_backward="forward only")
    rows = measure([forward_only], experiment, SHORT)
    assert [row.measure for row in rows] == list(PHASES[:3])
    assert {row.note for row in rows} == {"forward only"}


def test_tables_hold_the_published_figures() -> None:
    times = {"padding": 2000.0, OWN[0]: 1000.0}
    rows = [
        Row("step", way, measured, Summary(time, time, time, 3), images)
        for way, time in times.items()
        for measured, images in ((PHASES[2], 0), ("whole step", 4))
    ]
    rows.append(Row("step", "Triton", "", note="not available: no GPU"))
    phases, steps = phase_table(rows), step_table(rows)
    assert phases.lines[0] == ["padding", "", "", "2.00 (2.00-2.00)", "", "", "5.71", "132", "1.84"]
    assert phases.notes == ["Triton: not available: no GPU"]
    assert steps.lines[0] == ["padding", "2.00 (2.00-2.00)", "2,000", "2.00"]
    assert sum(bool(approach.published) for approach in APPROACHES) == 5
    assert str(ARTICLE).startswith(
        "batch 1024, 256 slots a sample; channels 32, 64, 128, 256, then Linear(65536"
    )
