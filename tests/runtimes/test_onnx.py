"""ONNX files in Python and C++: self-test, loss, and errors.

`test_formats.py` compares detections with TorchScript and Python, `test_named_outputs.py` to the bit.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path

import onnx
import onnx.external_data_helper
import pytest
import torch
from damaged_files import with_bit_flipped
from runner_answers import answer, refusal
from user_detectors import LosingItsOwnWay

from lensbox.common.errors import ArtifactError
from lensbox.export.pipeline import save_artifact
from lensbox.ops import library_path
from lensbox.runtime import load_artifact
from lensbox.runtime.file.seal import sealed_onnx

Change = Callable[[onnx.ModelProto], None]


def _resealed(data: bytes, change: Change) -> bytes:
    """Return the file after a change, with a valid seal."""
    model = onnx.load_model_from_string(data)
    kept = {entry.key: entry.value for entry in model.metadata_props if entry.key != "lensbox.sha256"}
    onnx.helper.set_model_props(model, kept)
    change(model)
    return sealed_onnx(model.SerializeToString())


def _lower_canvas(model: onnx.ModelProto) -> None:
    (entry,) = (entry for entry in model.metadata_props if entry.key == "lensbox.json")
    document = json.loads(entry.value)
    document["canvas"]["height"] = 128
    entry.value = json.dumps(document)


def _without_metadata(model: onnx.ModelProto) -> None:
    onnx.helper.set_model_props(model, {})


def _other_output(model: onnx.ModelProto) -> None:
    del model.graph.output[2]


def _other_operator(model: onnx.ModelProto) -> None:
    model.graph.node[0].domain = "some.where"
    model.opset_import.append(onnx.helper.make_opsetid("some.where", 1))


def _other_weights(model: onnx.ModelProto) -> None:
    """Change weights so that the file loads and the self-test fails."""
    for value in model.graph.initializer:
        if value.name.endswith("prediction.weight"):
            value.raw_data = bytes(len(value.raw_data))


def _weights_in_the_current_folder(model: onnx.ModelProto) -> None:
    """Move the largest weights to a file in the current folder, as ONNX allows."""
    value = max(model.graph.initializer, key=lambda value: len(value.raw_data))
    Path("weights.bin").write_bytes(value.raw_data)
    onnx.external_data_helper.set_external_data(value, "weights.bin", 0, len(value.raw_data))
    value.ClearField("raw_data")


# A change, and regular expressions for the error in Python and in C++.
_REFUSED: list[tuple[Change, str, str]] = [
    (_without_metadata, "it holds no lensbox.json", "it holds no lensbox.json"),
    (
        _lower_canvas,
        r"the input images must be uint8 \[any, 1, 128, 256\], got uint8 \[any, 1, 256, 256\]",
        "method detect failed:.*images.* Got: 128 Expected: 256",
    ),
    (_other_output, "the outputs boxes, scores, counts, got boxes, scores", "method detect failed:.*counts"),
    (_weights_in_the_current_folder, "has external data", "external data"),
    (_other_operator, "operators beyond ONNX's standard ones, of the domain 'some.where'", "standard"),
]

needs_onnxruntime = pytest.mark.onnx_runner


@needs_onnxruntime
def test_other_weights_fail_the_self_test(onnx_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "changed.onnx"
    path.write_bytes(_resealed(onnx_path.read_bytes(), _other_weights))
    assert not load_artifact(path).self_test().passed
    assert answer("selftest", "--artifact", path, code=3)["passed"] is False


@needs_onnxruntime
def test_a_loss_of_the_detector_is_not_exported(tmp_path: Path) -> None:
    path = tmp_path / "own.onnx"
    save_artifact(LosingItsOwnWay(), path, kind="onnx")
    assert answer("selftest", "--artifact", path)["passed"] is True
    boxes = tmp_path / "boxes.json"
    boxes.write_text("[[0, 0, 8, 8]]")
    message = refusal(3, "loss", "--artifact", path, "--predictions", boxes, "--targets", boxes)
    assert "has no method loss" in message


@needs_onnxruntime
@pytest.mark.parametrize(("change", "python", "cpp"), _REFUSED)
def test_both_refuse_a_changed_model(
    onnx_path: Path, tmp_path: Path, change: Change, python: str, cpp: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a change writes weights to the current folder
    path = tmp_path / "changed.onnx"
    path.write_bytes(_resealed(onnx_path.read_bytes(), change))
    with pytest.raises(ArtifactError, match=rf"(?s)changed\.onnx .*{python}"):
        load_artifact(path)
    text = refusal(3, "selftest", "--artifact", path)
    assert re.search(rf"changed\.onnx.*{cpp}", text, re.DOTALL), text


@pytest.mark.parametrize("part", [0.0, 0.6])
def test_refuses_a_flipped_bit(onnx_path: Path, tmp_path: Path, part: float) -> None:
    data = onnx_path.read_bytes()
    path = tmp_path / "flipped.onnx"
    path.write_bytes(with_bit_flipped(data, int(part * len(data))))
    assert re.search("seal|not an artifact", refusal(3, "selftest", "--artifact", path))


@needs_onnxruntime
def test_refuses_a_gpu(onnx_path: Path) -> None:
    message = refusal(2, "selftest", "--artifact", onnx_path, "--device", "cuda")
    if torch.cuda.is_available():
        assert "device must be cpu for an ONNX file, got cuda" in message


def test_without_onnxruntime(
    onnx_path: Path, artifact_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program is built without onnxruntime or does not find it. Other files need none."""
    monkeypatch.setenv("LENSBOX_ONNXRUNTIME", str(tmp_path / "missing.so"))
    assert "an ONNX file, which needs onnxruntime" in refusal(3, "selftest", "--artifact", onnx_path)
    assert answer("info", "--artifact", onnx_path)
    assert answer("selftest", "--artifact", artifact_path)["passed"] is True


@needs_onnxruntime
def test_names_a_library_that_is_not_onnxruntime(onnx_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LENSBOX_ONNXRUNTIME", str(library_path()))
    assert "undefined symbol: OrtGetApiBase" in refusal(3, "selftest", "--artifact", onnx_path)
