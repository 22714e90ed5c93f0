"""The log, the best weights and the metadata that runs write."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from short_runs import SIX_STEPS as CONFIG
from short_runs import interrupt, make_step, run_options, train

from lensbox.common.errors import InputError
from lensbox.evaluation.figures import Figures
from lensbox.model import load_detector
from lensbox.train.photographs import StoreTensors
from lensbox.train.run import training as trainer
from lensbox.train.run.reports import Reports
from lensbox.train.run.step import TrainStep
from lensbox.train.run.training import load_checkpoint
from lensbox.train.settings import TrainInputs

ANY_DATA: Any = object()  # for runs whose scoring is replaced


class Scores:
    """Scores or errors in place of evaluations, at which steps, and of which weight averages."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *values: float | Exception) -> None:
        self._values = iter(values)
        self.steps: list[int] = []
        self.averages: list[dict[str, torch.Tensor]] = []
        monkeypatch.setattr(trainer, "evaluate_average", self)

    def __call__(self, step: TrainStep, *_: object, **__: object) -> Figures:
        value = next(self._values)
        if isinstance(value, Exception):
            raise value
        self.steps.append(step.step)
        self.averages.append({name: tensor.clone() for name, tensor in step.average.state_dict().items()})
        return Figures({"all>=8": value, "tiny4-8": float("nan")}, 1, 1, 0.4, 0.7, {})


@pytest.mark.parametrize("after", [1, 2])
def test_an_interruption_loses_no_evaluation_no_best_average_and_no_line_of_the_log(
    store: StoreTensors,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    after: int,
) -> None:
    """The evaluation in the middle is done before the interruption or after resuming."""
    scores, log = Scores(monkeypatch, 0.5, 0.2), tmp_path / "log.jsonl"
    config = CONFIG.replace(evaluations=1, steps=3, log_seconds=1e-9)
    interrupt(store, config, run_options(tmp_path), after, ANY_DATA)
    with log.open("a") as file:
        file.write('\0\0\n[]\n{"step": 9}\n{"step": 2')  # damaged, after the checkpoint, and cut short
    train(store, config, run_options(tmp_path, resume=True), ANY_DATA)
    assert scores.steps == [2, 3]
    for name, state in (("best", scores.averages[0]), ("weights", scores.averages[-1])):
        written = load_detector(tmp_path / f"{name}.safetensors").state_dict()
        assert all(torch.equal(value, state[key]) for key, value in written.items())
    lines = [json.loads(line, parse_constant=lambda name: name) for line in log.read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == [1, 2, 3]
    evaluated = [line for line in lines if "AP all>=8" in line]
    assert [line["step"] for line in evaluated] == [2, 3]
    assert evaluated[0]["AP tiny4-8"] is None
    train(store, config.replace(steps=1), run_options(tmp_path))  # a new run
    assert [json.loads(line)["step"] for line in log.read_text().splitlines()] == [1]
    assert load_checkpoint(tmp_path / "earlier_checkpoint.pt")["step"]["step"] == 3
    assert "of an earlier run is now" in caplog.text


def test_failed_interim_evaluations_do_not_end_the_run(
    store: StoreTensors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Scores(monkeypatch, InputError("boxes must be"), 0.5)
    assert train(store, CONFIG.replace(evaluations=1, steps=2), run_options(tmp_path), ANY_DATA) is not None
    assert "training goes on: boxes must be" in caplog.text


def test_slow_rates_have_a_decimal(
    store: StoreTensors, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "lensbox")
    step = make_step(store)
    reports = Reports(TrainInputs(data=(), output=tmp_path), step, time.monotonic(), 0.0, {})
    reports.exclude_time(-5)  # four views in more than five seconds
    step.run(0.1)
    reports.report(0.1)
    assert re.search(r" 0\.[1-9] img/s", caplog.text)
