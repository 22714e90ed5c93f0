"""`lensbox info` and the options of `lensbox sign`."""

import json
from pathlib import Path

import pytest
from small_detectors import RedAndBlue

from lensbox.cli.main import main
from lensbox.common.errors import ExitCode
from lensbox.export.pipeline import save_artifact


def described(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    assert main(["info", str(path)]) == 0
    lines = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert lines["file"] == f"{path}, {path.stat().st_size} bytes"
    return lines


def test_describes_a_file(
    onnx_path: Path, program_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_artifact(RedAndBlue(), tmp_path / "colors.pt")
    lines = described(tmp_path / "colors.pt", capsys)
    assert lines["format"] == "TorchScript, metadata of format 2"
    assert lines["detector"] == "red_and_blue"
    assert lines["canvas"] == "320 x 192, RGB, letterbox, bilinear"
    assert lines["classes"] == "2: red, blue"
    assert lines["thresholds"] == "score 0.4, IoU 0.3"
    assert described(onnx_path, capsys)["format"] == "ONNX (only detect), metadata of format 2"
    assert described(program_path, capsys)["format"].startswith("Exported program (detect and loss)")


def test_prints_the_metadata(
    artifact_path: Path, onnx_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = []
    for path in (artifact_path, onnx_path):
        assert main(["info", "--json", str(path)]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["weights_sha256"] == found[1]["weights_sha256"]
    assert found[0]["self_test"]["image"] == found[1]["self_test"]["image"]


def test_reports_the_installation_without_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    assert "torch: " in capsys.readouterr().out
    assert main(["info", "--json"]) == 2


@pytest.mark.parametrize(
    "words", ["", "--new-key a --key b", "--new-key a --artifact b", "--key a", "--artifact a"]
)
def test_rejects_wrong_combinations_of_options(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sign", *words.split()]) == ExitCode.USAGE
    assert "--key" in capsys.readouterr().err
