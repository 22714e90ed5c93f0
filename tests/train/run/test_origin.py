"""Initial weights and teachers of a run, folds left out, and what weights say of their origin."""

import json
import logging
from pathlib import Path

import pytest
import torch
from programs import Lensbox
from short_runs import SHORT_RUN, TINY, interrupt, run_options, small_detector, train
from small_detectors import varied_detector

from lensbox.evaluation.data.labels import read_labels
from lensbox.model import load_detector, read_metadata, save_detector, weights_sha256
from lensbox.train.photographs import StoreTensors, fold_index
from lensbox.train.run.origin import (
    check_same_origin,
    fold_count,
    fold_text,
    load_origin,
    load_teachers,
    parse_fold,
    without_fold,
)
from lensbox.train.run.training import load_checkpoint
from lensbox.train.settings import ConfigError, TrainInputs

# Without recalibration, the run delivers the average unchanged.
CONFIG = SHORT_RUN.replace(seed=3, steps=2, recalibration_views=0, log_seconds=1e-9)


def test_a_run_starts_from_the_given_weights_and_names_them_and_its_teachers(
    store: StoreTensors, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also after an interruption: the checkpoint remembers them."""
    weights = tmp_path / "earlier.safetensors"
    save_detector(varied_detector(spread=0.2), weights)
    caplog.set_level(logging.INFO, "lensbox")
    start, later = (
        load_origin(TrainInputs(data=(), weights=initial, teacher=(weights,)), CONFIG)
        for initial in (weights, None)
    )
    interrupt(store, CONFIG, run_options(tmp_path, origin=start), after=0)
    state, given = load_checkpoint(tmp_path / "checkpoint.pt")["step"], load_detector(weights)
    assert state["step"] == 0
    for part in ("model", "average"):
        assert all(torch.equal(state[part][name], value) for name, value in given.state_dict().items()), part
    train(store, CONFIG, run_options(tmp_path, origin=later, resume=True))
    assert " taught " in caplog.text
    digest = weights_sha256(given)
    expected = {"teachers": weights.name, "teachers_sha256": digest}
    expected |= {"initial_weights": weights.name, "initial_weights_sha256": digest}
    figures = json.loads((tmp_path / "figures.json").read_text())
    for facts in (read_metadata(tmp_path / "weights.safetensors"), figures):
        assert facts.items() >= {**expected, "command": "test"}.items()


@pytest.mark.parametrize(
    ("now", "got"),
    [
        ({}, "got nothing"),
        ({"teachers": "two", "teachers_sha256": "2"}, "got two"),
        ({"teachers": "one", "teachers_sha256": "2"}, "got different weights named one"),
    ],
)
def test_a_resumed_run_needs_its_teachers(now: dict[str, str], got: str) -> None:
    before = {"teachers": "one", "teachers_sha256": "1"}
    check_same_origin(before, before)
    with pytest.raises(ConfigError, match=rf"--teacher must be the same .* \(one\), {got}"):
        check_same_origin(now, before)


def test_reads_and_writes_folds() -> None:
    assert parse_fold("1/4") == (1, 4)
    assert fold_text(parse_fold("4/4")) == "4/4"
    for text in ("0/4", "5/4", "1/1", "a/4"):
        with pytest.raises(ConfigError, match="--leave-out must be a share such as 1/4"):
            parse_fold(text)


def saved(path: Path, seed: int, left_out: str | None = None) -> Path:
    save_detector(small_detector(seed), path, {"left_out": left_out} if left_out else {})
    return path


def test_teachers_are_sorted_into_sets_by_the_fold_they_left_out(tmp_path: Path) -> None:
    paths = [saved(tmp_path / f"{i}", i, f"{i % 2 + 1}/2") for i in range(4)] + [saved(tmp_path / "whole", 9)]
    teachers, facts = load_teachers(paths)
    assert fold_count(teachers) == 2
    digests = [weights_sha256(load_detector(path)) for path in paths]
    assert facts == {"teachers": "0, 1, 2, 3, whole", "teachers_sha256": ", ".join(digests)}
    found = [[weights_sha256(one) for one in group] for group in teachers]
    assert found == [digests[4:], digests[:2], digests[2:4]]


@pytest.mark.parametrize(
    ("left_out", "message"),
    [
        (["1/2"], "--teacher must name as many teachers without each fold .* got 1 wi"),
        (["1/2", "2/2", "2/2"], "--teacher must name as many"),
        (["half"], "0: 'left_out' in its metadata must be a share .* 'half'"),
    ],
)
def test_rejects_incomplete_sets_of_teachers(tmp_path: Path, left_out: list[str], message: str) -> None:
    paths = [saved(tmp_path / str(i), i, text) for i, text in enumerate(left_out)]
    with pytest.raises(ConfigError, match=message):
        load_teachers(paths)


def test_a_fold_stays_left_out(faces_folder: Path, tmp_path: Path, lensbox: Lensbox) -> None:
    """A resumed run keeps its fold. A run cannot leave out a fold that its initial weights have seen."""
    arguments = ["--data", faces_folder, *TINY, "--steps", "1", "--recalibration-views", "0"]
    run = ["--output", tmp_path / "run"]
    lensbox("train", *arguments, *run, "--leave-out", "1/3")
    weights = tmp_path / "run" / "weights.safetensors"
    images, _ = read_labels([faces_folder])
    kept = {image.name for image in without_fold(images, (1, 3))}
    assert kept == {image.name for image in images if fold_index(image.name, 3) != 0}
    left = str(len(kept))
    assert read_metadata(weights).items() >= {"left_out": "1/3", "photographs": left}.items()

    (tmp_path / "run" / "figures.json").unlink()  # the run is not finished
    _, said = lensbox("train", *arguments, *run, "--resume", code=2)
    assert "--leave-out must be the same as when the run began (1/3), got nothing" in said
    _, said = lensbox("train", *arguments, *run, "--weights", weights, "--leave-out", "2/3", code=2)
    assert "--weights must have been trained without fold 2/3, as --leave-out says" in said
    assert "got weights that left out 1/3" in said
