"""`lensbox info FILE`: what it says of each format, and of what is no artifact."""

import json
from pathlib import Path

import pytest
from user_detectors import RedAndBlue

from lensbox.common.main import main
from lensbox.export.artifact_writer import save_artifact
from lensbox.export.onnx_writer import save_onnx


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("info")
    save_artifact(RedAndBlue(), folder / "detector.pt")
    save_onnx(RedAndBlue(), folder / "detector.onnx")
    return folder


@pytest.mark.parametrize(("suffix", "kind"), [("pt", "TorchScript"), ("onnx", "ONNX (detect alone)")])
def test_says_what_a_file_is(
    folder: Path, capsys: pytest.CaptureFixture[str], suffix: str, kind: str
) -> None:
    path = folder / f"detector.{suffix}"
    assert main(["info", str(path)]) == 0
    lines = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert lines["file"] == f"{path}, {path.stat().st_size} bytes"
    assert lines["format"] == f"{kind}, metadata of format 2"
    assert lines["detector"] == "red_and_blue"
    assert lines["canvas"] == "320 x 192, RGB"
    assert lines["classes"] == "2: red, blue"
    assert lines["thresholds"] == "score 0.4, IoU 0.3"


def test_says_what_an_exported_program_is(program_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(program_path)]) == 0
    lines = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert lines["format"] == "exported program (detect alone, plain operators), metadata of format 2"
    assert lines["operators"] == "none of a library's"
    assert lines["detector"] == "red_and_blue"


def test_prints_the_metadata(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for suffix in ("pt", "onnx"):
        assert main(["info", "--json", str(folder / f"detector.{suffix}")]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["weights_sha256"] == found[1]["weights_sha256"]
    assert found[0]["self_test"]["image"] == found[1]["self_test"]["image"]


@pytest.mark.parametrize("content", [b"", b"noise", b"\x08noise", b"PKnoise"])
def test_what_is_no_artifact_ends_with_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    (tmp_path / "file").write_bytes(content)
    assert main(["info", str(tmp_path / "file")]) == 3
    assert f"{tmp_path}/file is " in capsys.readouterr().err


def test_without_a_file_it_tells_of_the_installation(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    assert "torch: " in capsys.readouterr().out
    assert main(["info", "--json"]) == 2
