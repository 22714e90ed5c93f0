"""`lensbox export`: what it warns of, and that no half file stays."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from programs import Lensbox
from small_detectors import TINY, varied_detector
from waiting import PATIENCE

from lensbox.model import DetectorConfig, FaceDetector, save_detector
from lensbox.runtime import load_artifact


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    return tmp_path / "w.safetensors"


def test_warns_if_all_scores_tie(weights: Path, lensbox: Lensbox) -> None:
    detector = FaceDetector(DetectorConfig(stem_width=4, widths=(4, 4, 4, 4), pyramid_width=4))
    for parameter in detector.parameters():
        torch.nn.init.zeros_(parameter)
    save_detector(detector, weights, {"figures": '{"recommended_threshold": 0.0123}'})
    output = weights.with_name("a.pt")
    _, said = lensbox("export", "--weights", weights, "--output", output)
    assert load_artifact(output).metadata.defaults.score_threshold == 0.01
    assert "scores lie so close together that rounding decides" in said


@pytest.mark.parametrize(
    "line", ["choosing a self-test", pytest.param("loading the file back", marks=pytest.mark.exhaustive)]
)
def test_sigterm_leaves_no_file(line: str, weights: Path) -> None:
    save_detector(varied_detector(0.4, TINY), weights)
    options = ["--weights", str(weights), "--output", str(weights.with_name("a.pt"))]
    command = [sys.executable, "-m", "lensbox.cli", "export", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for text in process.stderr:
            if text.startswith(line):
                break
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 128 + signal.SIGTERM
    assert list(weights.parent.iterdir()) == [weights]
