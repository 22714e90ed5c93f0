"""ONNX files in Python and C++: self-test, loss, and errors.

`test_detect_only.py` compares detections with TorchScript and Python, `test_named_outputs.py` to the bit.
"""

import json
import re
from pathlib import Path

import pytest
import torch
from damaged_files import with_bit_flipped
from onnx_files import REFUSED, Change, other_weights, resealed
from runner_answers import answer, run
from unusual_detectors import LosingItsOwnWay

from lensbox.common.errors import ArtifactError
from lensbox.export.pipeline import save_artifact
from lensbox.ops import library_path
from lensbox.runtime import load_artifact

needs_onnxruntime = pytest.mark.onnx_runner


def refused(path: Path) -> str:
    """Return the runner's message; check that it exits with 3 and prints nothing."""
    done = run("selftest", "--artifact", path)
    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    assert path.name in done.stderr
    return done.stderr


@needs_onnxruntime
def test_other_weights_fail_the_self_test(onnx_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "changed.onnx"
    path.write_bytes(resealed(onnx_path.read_bytes(), other_weights))
    assert not load_artifact(path).self_test().passed
    assert json.loads(run("selftest", "--artifact", path, code=3).stdout)["passed"] is False


@needs_onnxruntime
def test_a_loss_of_the_detector_is_not_exported(tmp_path: Path) -> None:
    path = tmp_path / "own.onnx"
    save_artifact(LosingItsOwnWay(), path, kind="onnx")
    assert answer("selftest", "--artifact", path)["passed"] is True
    boxes = tmp_path / "boxes.json"
    boxes.write_text("[[0, 0, 8, 8]]")
    done = run("loss", "--artifact", path, "--predictions", boxes, "--targets", boxes)
    assert done.returncode == 3
    assert "has no method loss" in done.stderr


@needs_onnxruntime
@pytest.mark.parametrize(("change", "python", "cpp"), REFUSED)
def test_both_refuse_a_changed_model(
    onnx_path: Path, tmp_path: Path, change: Change, python: str, cpp: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a change writes weights to the current folder
    path = tmp_path / "changed.onnx"
    path.write_bytes(resealed(onnx_path.read_bytes(), change))
    with pytest.raises(ArtifactError, match=rf"(?s)changed\.onnx .*{python}"):
        load_artifact(path)
    text = refused(path)
    assert re.search(cpp, text, re.DOTALL), text


@pytest.mark.parametrize("part", [0.0, 0.6, 0.9999])
def test_refuses_a_flipped_bit(onnx_path: Path, tmp_path: Path, part: float) -> None:
    data = onnx_path.read_bytes()
    path = tmp_path / "flipped.onnx"
    path.write_bytes(with_bit_flipped(data, int(part * len(data))))
    assert re.search("seal|not an artifact", refused(path))


@needs_onnxruntime
def test_refuses_a_gpu(onnx_path: Path) -> None:
    done = run("selftest", "--artifact", onnx_path, "--device", "cuda")
    assert (done.returncode, done.stdout) == (2, "")
    if torch.cuda.is_available():
        assert "device must be cpu for an ONNX file, got cuda" in done.stderr


def test_without_onnxruntime(
    onnx_path: Path, artifact_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program is built without onnxruntime or does not find it. Other files need none."""
    monkeypatch.setenv("LENSBOX_ONNXRUNTIME", str(tmp_path / "missing.so"))
    assert "an ONNX file, which needs onnxruntime" in refused(onnx_path)
    assert answer("info", "--artifact", onnx_path)
    assert answer("selftest", "--artifact", artifact_path)["passed"] is True


@needs_onnxruntime
def test_names_a_library_that_is_not_onnxruntime(onnx_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LENSBOX_ONNXRUNTIME", str(library_path()))
    assert "undefined symbol: OrtGetApiBase" in refused(onnx_path)
