"""Whole runs: the files that they write, and resuming after an interruption."""

import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from short_runs import SIX_STEPS as CONFIG
from short_runs import interrupt, run_options, train

from lensbox.common.errors import InputError
from lensbox.model import load_detector, read_metadata
from lensbox.train.data.image_store import StoreTensors
from lensbox.train.data.labels import read_labels
from lensbox.train.evaluation.evaluation_set import load_evaluation_set
from lensbox.train.evaluation.figures import Figures
from lensbox.train.run import training as trainer
from lensbox.train.run.reports import RunOptions
from lensbox.train.run.step import TrainingError, TrainStep
from lensbox.train.run.training import TrainingRun, load_checkpoint, save_checkpoint

ANY_DATA: Any = object()  # for runs whose scoring is replaced


@pytest.mark.exhaustive
def test_overfits_a_handful_of_photographs(store: StoreTensors, faces_folder: Path, tmp_path: Path) -> None:
    views = {"mosaic_share": 0.0, "whole_share": 1.0, "photometric": 0.0}
    config = CONFIG.replace(steps=60, batch_size=4, learning_rate=8e-3, **views)
    validation = load_evaluation_set(read_labels([faces_folder])[0], workers=2)
    figures = train(store, config, run_options(tmp_path), validation)
    assert figures is not None
    assert figures.average_precision["all>=8"] > 0.6


class Scores:
    """Scores in place of evaluations, at which steps, and of which weight averages."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *values: float) -> None:
        self._values = iter(values)
        self.steps: list[int] = []
        self.averages: list[dict[str, torch.Tensor]] = []
        monkeypatch.setattr(trainer, "score", self)

    def __call__(self, step: TrainStep, *_: object, **__: object) -> Figures:
        state = step.average.state_dict()
        self.steps.append(step.step)
        self.averages.append({name: tensor.clone() for name, tensor in state.items()})
        return Figures({"all>=8": next(self._values), "tiny4-8": float("nan")}, 1, 1, 0.4, 0.7)


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
        file.write('{"step": 9}\n{"step": 2')  # after the checkpoint, and cut short
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
    results: Any = iter([InputError("boxes must be"), Figures({"all>=8": 0.5}, 1, 1, 0.4, 0.7)])

    def broken_once(*_: Any) -> Any:
        result = next(results)
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(trainer, "evaluate", broken_once)
    figures = train(store, CONFIG.replace(evaluations=1, steps=2), run_options(tmp_path), ANY_DATA)
    assert figures is not None
    assert "training goes on: boxes must be" in caplog.text


def test_resumed_and_uninterrupted_runs_end_with_equal_weights(
    store: StoreTensors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trying compiled functions out draws views, which must not change later ones."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    config, whole, cut = CONFIG.replace(compile=True, steps=4), tmp_path / "whole", tmp_path / "cut"
    train(store, config, run_options(whole))
    expected = load_checkpoint(whole / "checkpoint.pt")["step"]
    interrupt(store, config, run_options(cut), after=2)
    assert not (cut / "weights.safetensors").exists()
    assert (cut / "config.json").is_file()  # with the checkpoint, all that --resume needs
    interrupt(store, config, run_options(cut, resume=True), after=1)
    for _ in range(2):  # resuming a finished run changes nothing
        train(store, config, run_options(cut, resume=True))
        resumed = load_checkpoint(cut / "checkpoint.pt")["step"]
        assert resumed["step"] == expected["step"] == config.steps
        for part in ("model", "average"):
            for name, value in expected[part].items():
                assert torch.equal(value, resumed[part][name]), (part, name)


def test_a_resumed_run_keeps_its_detector_and_takes_new_settings(store: StoreTensors, tmp_path: Path) -> None:
    interrupt(store, CONFIG.replace(weight_decay=0.05), run_options(tmp_path), after=1)
    options = run_options(tmp_path, resume=True)
    resumed = TrainingRun(store, CONFIG.replace(weight_decay=0.5), options)
    assert [group["weight_decay"] for group in resumed.step.optimizer.param_groups] == [0.5, 0.0]
    with pytest.raises(InputError, match="must hold the detector"):
        TrainingRun(store, CONFIG.replace(model="base"), options)


def test_a_time_limit_ends_the_run_and_its_schedule(
    store: StoreTensors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TrainingError, match="must leave time to train"):
        train(store, CONFIG, run_options(tmp_path, time_limit=1.0, started=time.monotonic() - 5))
    weights = tmp_path / "weights.safetensors"
    assert not weights.exists()
    clock = itertools.count()
    monkeypatch.setattr(RunOptions, "seconds", lambda _: float(next(clock)))
    recipe = {"command": "--data " + os.fsdecode(b"caf\xe9")}  # metadata must be Unicode, paths need not
    train(store, CONFIG.replace(steps=10**9), run_options(tmp_path, time_limit=12.0, recipe=recipe))
    assert read_metadata(weights)["command"] == r"--data caf\udce9"
    assert load_checkpoint(tmp_path / "checkpoint.pt")["progress"] == 1.0


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"log_seconds": 1e-9}, "loss must be finite"),
        ({"log_seconds": 1e6, "checkpoint_seconds": 1e-9}, "weights must be finite"),
    ],
)
def test_a_diverging_run_stops_and_keeps_its_last_checkpoint(
    store: StoreTensors, tmp_path: Path, more: dict[str, float], message: str
) -> None:
    config = CONFIG.replace(learning_rate=1e30, warmup_progress=0.0, gradient_clip=0.0, steps=40, **more)
    with pytest.raises(TrainingError, match=message):
        train(store, config, run_options(tmp_path))
    if "checkpoint_seconds" in more:
        kept = load_checkpoint(tmp_path / "checkpoint.pt")["step"]
        assert all(bool(value.isfinite().all()) for value in kept["model"].values())


def test_files_that_are_no_checkpoints_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.pt"
    with pytest.raises(InputError, match=r"c\.pt"):
        load_checkpoint(path)
    save_checkpoint(path, {"value": torch.ones(1000)})
    whole = path.read_bytes()
    swapped = (whole.replace(b"\x80\x02}", b"\x80\x02?"), whole.replace(b"PK\1\2", b"PK??"))
    for damaged in (b"no checkpoint", whole[: len(whole) // 2], whole[200:], *swapped):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="must be a checkpoint") as caught:
            load_checkpoint(path)
        assert "weights_only" not in str(caught.value)  # torch's advice, to run what the file holds
    torch.save({"format": 0}, path)
    with pytest.raises(ValueError, match="format"):
        load_checkpoint(path)
