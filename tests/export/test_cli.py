"""`lensbox export`, `info` and `sign`: warnings, no half files, descriptions, wrong options."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from programs import Lensbox
from small_detectors import TINY, RedAndBlue, varied_detector
from waiting import PATIENCE

from lensbox.common.errors import ExitCode
from lensbox.export import save_artifact
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


def described(path: Path, lensbox: Lensbox) -> dict[str, str]:
    lines = dict(line.split(": ", 1) for line in lensbox("info", path)[0].splitlines())
    assert lines["file"] == f"{path}, {path.stat().st_size} bytes"
    return lines


def test_describes_a_file(onnx_path: Path, program_path: Path, tmp_path: Path, lensbox: Lensbox) -> None:
    save_artifact(RedAndBlue(), tmp_path / "colors.pt")
    lines = described(tmp_path / "colors.pt", lensbox)
    assert lines["format"] == "TorchScript, metadata of format 3"
    assert lines["detector"] == "red_and_blue"
    assert lines["canvas"] == "320 x 192, RGB, letterbox, bilinear"
    assert lines["classes"] == "2: red, blue"
    assert lines["thresholds"] == "score 0.4, IoU 0.3"
    assert described(onnx_path, lensbox)["format"] == "ONNX (only detect), metadata of format 3"
    assert described(program_path, lensbox)["format"].startswith("Exported program (detect and loss)")


def test_prints_the_metadata(artifact_path: Path, onnx_path: Path, lensbox: Lensbox) -> None:
    found = [json.loads(lensbox("info", "--json", path)[0]) for path in (artifact_path, onnx_path)]
    assert found[0]["weights_sha256"] == found[1]["weights_sha256"]
    assert found[0]["self_test"]["image"] == found[1]["self_test"]["image"]


def test_reports_the_installation_without_a_file(lensbox: Lensbox) -> None:
    assert "torch: " in lensbox("info")[0]
    lensbox("info", "--json", code=ExitCode.USAGE)


@pytest.mark.parametrize(
    "words", ["", "--new-key a --key b", "--new-key a --artifact b", "--key a", "--artifact a"]
)
def test_rejects_wrong_combinations_of_options(words: str, lensbox: Lensbox) -> None:
    assert "--key" in lensbox("sign", *words.split(), code=ExitCode.USAGE)[1]
