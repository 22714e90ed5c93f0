import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import safetensors
import torch
from short_runs import SHORT_RUN, interrupt, run_options, train

from lensbox.common.main import main
from lensbox.model import DetectorConfig, FaceDetector, load_detector, save_detector, weights_sha256
from lensbox.train.data.image_store import ImageStore
from lensbox.train.run.checkpoint import load_checkpoint
from lensbox.train.run.origin import Origin
from lensbox.train.run.run import RunOptions

# Without recalibration, what is delivered is the average as it is.
CONFIG = SHORT_RUN.replace(seed=3, steps=2, log_seconds=1e-9, recalibration_views=0)
KEYS = ("steps", "batch_size", "compile", "bf16", "recalibration_views")
SET = [f"{key}={json.dumps(getattr(CONFIG, key))}" for key in KEYS]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of weights that no seed of these tests gives."""
    torch.manual_seed(99)
    detector = FaceDetector(DetectorConfig.named("small"))
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


def test_command(
    faces_folder: Path, weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--data", str(faces_folder), "--output", str(tmp_path / "run"), "--device", "cpu"]
    start = [*arguments, "--weights", str(weights)]
    assert main(["train", *start, "--set", "model=small", *SET]) == 0
    figures = json.loads((tmp_path / "run" / "figures.json").read_text())
    assert figures["initial_weights"] == "earlier.safetensors"
    capsys.readouterr()

    assert main(["train", *start, "--set", *SET]) == 2  # the default is another layout
    printed = capsys.readouterr()
    assert "got 'base', whose stem_width is" in printed.err
    assert "decoded" not in printed.out  # it did not wait for the photographs

    assert main(["train", *start, "--resume"]) == 2
    assert "--resume and --weights must not be given together" in capsys.readouterr().err

    absent = tmp_path / "absent.safetensors"
    assert main(["train", *arguments, "--weights", str(absent)]) == 4
    assert "absent.safetensors" in capsys.readouterr().err
    absent.write_bytes(b"nothing")
    assert main(["train", *arguments, "--weights", str(absent)]) == 4
    assert "is not a safetensors file" in capsys.readouterr().err
