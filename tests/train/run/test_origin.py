"""Initial weights of a run, and the facts that weights keep of their origin."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors
import torch
from short_runs import SHORT_RUN, interrupt, run_options, small_detector, train

from lensbox.model import load_detector, save_detector, weights_sha256
from lensbox.train.data.image_store import ImageStore
from lensbox.train.run.checkpoint import load_checkpoint
from lensbox.train.run.origin import Origin
from lensbox.train.run.run import RunOptions

# Without recalibration, the run delivers the average unchanged.
CONFIG = SHORT_RUN.replace(seed=3, steps=2, log_seconds=1e-9, recalibration_views=0)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of weights that no seed of these tests gives."""
    detector = small_detector(99)
    with torch.no_grad():
        for name, value in detector.named_buffers():
            if name.endswith("running_mean"):
                value.uniform_(-0.1, 0.1)
    path = tmp_path_factory.mktemp("weights") / "earlier.safetensors"
    save_detector(detector, path)
    return path


def options(output: Path, weights: Path | None, **changes: Any) -> RunOptions:
    return run_options(output, origin=Origin(weights), **changes)


def test_a_run_starts_from_the_given_weights(store: ImageStore, weights: Path, tmp_path: Path) -> None:
    interrupt(store, CONFIG, options(tmp_path, weights), after=0)
    state, given = load_checkpoint(tmp_path / "checkpoint.pt")["step"], load_detector(weights).state_dict()
    assert state["step"] == 0
    for part in ("model", "average"):
        assert all(torch.equal(value, given[name]) for name, value in state[part].items()), part


def test_the_delivered_weights_say_what_they_started_from(
    store: ImageStore, weights: Path, tmp_path: Path
) -> None:
    """Also after an interruption: the checkpoint remembers it."""
    expected = {
        "initial_weights": "earlier.safetensors",
        "initial_weights_sha256": weights_sha256(load_detector(weights)),
    }
    interrupt(store, CONFIG, options(tmp_path, weights), after=1)
    train(store, CONFIG, dataclasses.replace(options(tmp_path, None), resume=True))
    with safetensors.safe_open(tmp_path / "weights.safetensors", framework="pt") as file:
        metadata = file.metadata()
    figures = json.loads((tmp_path / "figures.json").read_text())
    for facts in (metadata, figures):
        assert {key: facts[key] for key in expected} == expected
        assert facts["command"] == "test"


def test_weights_of_another_layout_are_refused_before_photographs_are_decoded(
    faces_folder: Path, weights: Path, tmp_path: Path, lensbox: Callable[..., tuple[str, str]]
) -> None:
    start = ["--data", faces_folder, "--output", tmp_path / "run", "--weights", weights]
    _, said = lensbox("train", *start, "--set", "steps=1", code=2)  # the default is another layout
    assert "model: must have the layout of the initial weights, got 'base', whose stem_width is 16" in said
    assert "decoded" not in said
    (tmp_path / "bad.safetensors").write_bytes(b"nothing")
    _, said = lensbox("train", *start, "--weights", tmp_path / "bad.safetensors", code=4)
    assert "is not a safetensors file" in said
