"""Whole runs: the files that they write, and resuming after an interruption."""

import os
from pathlib import Path

import pytest
import torch
from short_runs import SIX_STEPS as CONFIG
from short_runs import interrupt, run_options, train

from lensbox.common.errors import InputError
from lensbox.evaluation.data.labels import read_labels
from lensbox.model import read_metadata
from lensbox.train.photographs import StoreTensors
from lensbox.train.run.step import TrainingError
from lensbox.train.run.training import TrainingRun, load_checkpoint, save_checkpoint


@pytest.mark.exhaustive
def test_overfits_a_handful_of_photographs(store: StoreTensors, faces_folder: Path, tmp_path: Path) -> None:
    views = {"mosaic_share": 0.0, "whole_share": 1.0, "photometric": 0.0}
    config = CONFIG.replace(steps=60, batch_size=4, learning_rate=8e-3, **views)
    validation, _ = read_labels([faces_folder])
    figures = train(store, config, run_options(tmp_path), validation)
    assert figures is not None
    assert figures.average_precision["all>=8"] > 0.6


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
    resumed = TrainingRun(store, CONFIG.replace(weight_decay=0.5), **options)
    assert [group["weight_decay"] for group in resumed.step.optimizer.param_groups] == [0.5, 0.0]
    with pytest.raises(InputError, match="must hold the detector"):
        TrainingRun(store, CONFIG.replace(model="base"), **options)


def test_command_lines_that_are_no_unicode_stand_in_the_metadata(store: StoreTensors, tmp_path: Path) -> None:
    command = "--data " + os.fsdecode(b"caf\xe9")  # metadata must be Unicode, paths need not
    train(store, CONFIG.replace(steps=1), run_options(tmp_path, command=command))
    assert read_metadata(tmp_path / "weights.safetensors")["command"] == r"--data caf\udce9"
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
