"""ONNX files: their content, their detections, and detectors that cannot be exported."""

from pathlib import Path

import onnx
import pytest
import torch
from programs import Lensbox
from small_detectors import Brightest, Named
from torch import Tensor

from lensbox.export import pipeline, save_artifact
from lensbox.export.formats.onnx import OPSET
from lensbox.model import FaceDetector, weights_sha256
from lensbox.runtime import ArtifactError, load_artifact


def test_holds_standard_operators_only(detector: FaceDetector, onnx_path: Path) -> None:
    model = onnx.load(onnx_path)
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", OPSET)]
    assert not model.functions
    operators = [node.op_type for node in model.graph.node]
    assert operators.count("NonMaxSuppression") == 1
    assert "BatchNormalization" not in operators
    onnx.checker.check_model(onnx_path, full_check=True)


def test_file_describes_itself(detector: FaceDetector, onnx_path: Path, artifact_path: Path) -> None:
    model = onnx.load(onnx_path)
    assert [value.name for value in model.graph.input] == ["images", "score_threshold", "iou_threshold"]
    assert [value.name for value in model.graph.output] == ["boxes", "scores", "counts"]
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert "uint8" in model.graph.input[0].doc_string
    metadata, script = load_artifact(onnx_path).metadata, load_artifact(artifact_path).metadata
    assert metadata.weights_sha256 == weights_sha256(detector) == script.weights_sha256
    assert metadata.ops == ()
    for name in ("name", "lensbox_version", "canvas", "reading", "methods", "output", "thresholds"):
        assert getattr(metadata, name) == getattr(script, name), name
    assert metadata.self_test.expected.boxes.equal(script.self_test.expected.boxes)
    # The exporter's notes would reveal source paths of this machine.
    assert str(Path(pipeline.__file__).parents[1]).encode() not in onnx_path.read_bytes()
    # Weights beside the file would be lost when it is copied.
    assert not [file.name for file in onnx_path.parent.iterdir() if file.name.startswith("detector.onnx.")]


@torch.library.custom_op("test_onnx_writer::nothing", mutates_args=())
def _nothing(values: Tensor) -> Tensor:
    return values.clone()


@_nothing.register_fake
def _(values: Tensor) -> Tensor:
    return torch.empty_like(values)


class WithOpOfItsOwn(Brightest):
    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Named:
        images = torch.ops.test_onnx_writer.nothing(images)
        return super().detect(images, score_threshold, iou_threshold)


def test_names_operators_without_translation(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="no translation of the operators test_onnx_writer::nothing"):
        save_artifact(WithOpOfItsOwn(), tmp_path / "detector.onnx", kind="onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["onnx", pytest.param("aoti", marks=pytest.mark.exhaustive)])
def test_needs_no_torchscript(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.14 and later have none."""
    for name in ("script", "trace", "freeze", "save", "load"):
        monkeypatch.setattr(torch.jit, name, None)
    metadata = save_artifact(Brightest(), tmp_path / "detector", kind=kind)
    assert load_artifact(tmp_path / "detector").metadata.to_json() == metadata.to_json()


def test_writes_no_file_if_one_format_fails(tmp_path: Path, lensbox: Lensbox) -> None:
    model = ["--model", "small_detectors:FittingItsOwnWay", "--output", tmp_path / "detector.pt"]
    _, said = lensbox("export", *model, "--format", "torchscript,onnx", code=3)
    assert "own preprocess cannot be exported: an ONNX file holds only detect" in said
    assert not list(tmp_path.iterdir())
