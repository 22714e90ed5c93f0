"""Initial weights of a run, and the facts that weights keep of their origin."""

import json
import logging
from pathlib import Path

import pytest
import torch
from short_runs import SHORT_RUN, interrupt, run_options, small_detector, train

from lensbox.model import load_detector, read_metadata, save_detector, weights_sha256
from lensbox.train.data.image_store import ImageStore
from lensbox.train.run.origin import check_same_origin, load_origin
from lensbox.train.run.training import load_checkpoint
from lensbox.train.settings import ConfigError, TrainInputs

# Without recalibration, the run delivers the average unchanged.
CONFIG = SHORT_RUN.replace(seed=3, steps=2, recalibration_views=0, log_seconds=1e-9)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A file of weights that no seed of these tests gives."""
    detector = small_detector(99)
    with torch.no_grad():
        for name, value in detector.named_buffers():
            if name.endswith("running_mean"):
                value.uniform_(-0.1, 0.1)
    save_detector(detector, tmp_path / "earlier.safetensors")
    return tmp_path / "earlier.safetensors"


def test_a_run_starts_from_the_given_weights_and_names_them_and_its_teachers(
    store: ImageStore, weights: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also after an interruption: the checkpoint remembers them."""
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
    expected = start.teachers.origin | {
        "initial_weights": weights.name,
        "initial_weights_sha256": weights_sha256(given),
    }
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
