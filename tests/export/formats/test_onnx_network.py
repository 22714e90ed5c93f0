"""The ONNX file of the network: what it holds, and that it computes what PyTorch computes."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from lensbox.common.main import main
from lensbox.export.formats import onnx_network
from lensbox.export.formats.onnx import OnnxExportError, to_onnx
from lensbox.export.verify.tolerances import prediction_failures
from lensbox.model import FaceDetector, weights_sha256


@pytest.fixture(scope="module")
def network_path(detector: FaceDetector, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("onnx") / "network.onnx"
    path.write_bytes(onnx_network.onnx_network(detector))
    return path


def test_the_file_describes_itself(detector: FaceDetector, network_path: Path) -> None:
    model = onnx.load(network_path)
    assert [value.name for value in model.graph.input] == ["images"]
    assert [value.name for value in model.graph.output] == ["boxes", "logits"]
    assert "uint8 [batch, 1, 256, 256]" in model.graph.input[0].doc_string
    assert "face detector" in model.doc_string
    properties = {entry.key: entry.value for entry in model.metadata_props}
    assert properties["weights_sha256"] == weights_sha256(detector)
    assert properties["torch_version"] in torch.__version__
    # The exporter's notes would tell where the sources lie on this machine.
    assert str(Path(onnx_network.__file__).parents[1]).encode() not in network_path.read_bytes()
    assert [file.name for file in network_path.parent.iterdir()] == ["network.onnx"]


def test_batch_norm_is_folded(detector: FaceDetector, network_path: Path) -> None:
    operators = [node.op_type for node in onnx.load(network_path).graph.node]
    assert "BatchNormalization" not in operators
    assert operators.count("Conv") == sum(isinstance(layer, nn.Conv2d) for layer in detector.modules())


@pytest.mark.parametrize("batch", [1, 5])
def test_onnxruntime_agrees_with_pytorch(detector: FaceDetector, network_path: Path, batch: int) -> None:
    images = torch.randint(0, 256, (batch, 1, 256, 256), dtype=torch.uint8)
    session = onnxruntime.InferenceSession(network_path, providers=["CPUExecutionProvider"])
    boxes, logits = session.run(["boxes", "logits"], {"images": images.numpy()})
    with torch.no_grad():
        expected_boxes, expected_logits = detector(images)
    np.testing.assert_allclose(boxes, expected_boxes, rtol=1e-4, atol=0.01)
    np.testing.assert_allclose(logits, expected_logits, rtol=0, atol=1e-3)


def test_a_network_that_disagrees_gets_no_file(
    detector: FaceDetector, network_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = onnx.load(network_path)  # of the same detector, in place of the exporter's
    monkeypatch.setattr(onnx_network, "to_onnx", lambda *_: model)
    path = tmp_path / "network.onnx"
    path.write_bytes(onnx_network.onnx_network(detector))
    path.unlink()
    bias = next(value for value in model.graph.initializer if value.name == "head4.prediction.bias")
    bias.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(bias) + 0.1, bias.name))
    with pytest.raises(
        OnnxExportError, match=r"onnxruntime disagrees with PyTorch: .*logits differ by up to 0\.1"
    ):
        path.write_bytes(onnx_network.onnx_network(detector))
    assert not list(tmp_path.iterdir())


def test_training_mode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="detector must be in eval mode"):
        (tmp_path / "network.onnx").write_bytes(onnx_network.onnx_network(FaceDetector()))


def test_batch_norm_that_stays_is_an_error() -> None:
    # Without a convolution there is nothing to fold it into.
    with pytest.raises(OnnxExportError, match="1 batch norms are not folded"):
        to_onnx(nn.Sequential(nn.ReLU(), nn.BatchNorm2d(1)).eval(), torch.zeros(2, 1, 4, 4), ["out"])


def test_an_example_of_one_image_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a batch of at least 2, got the shape \[1, 1, 4, 4\]"):
        to_onnx(nn.ReLU(), torch.zeros(1, 1, 4, 4), ["out"])


class TestPredictionFailures:
    boxes = torch.tensor([[[10.0, 10, 20, 20], [-4000, 0, 4000, 50]]])
    logits = torch.tensor([[0.5, -3.0]])

    def failures(self, boxes: Tensor, logits: Tensor) -> list[str]:
        return prediction_failures((boxes, logits), (self.boxes, self.logits))

    def test_rounding_passes(self) -> None:
        assert self.failures(self.boxes * (1 + 5e-5), self.logits + 9e-4) == []

    def test_more_is_named(self) -> None:
        assert self.failures(self.boxes + 0.05, self.logits + 0.1) == [
            "boxes differ by up to 0.05",
            "logits differ by up to 0.1",
        ]

    def test_nan_never_passes(self) -> None:
        assert self.failures(self.boxes, self.logits * float("nan")) == ["logits differ by up to nan"]

    def test_shape_and_dtype_count(self) -> None:
        assert self.failures(self.boxes.double(), self.logits[:, :1]) == [
            "boxes must be torch.float32 of shape [1, 2, 4], got torch.float64 of shape [1, 2, 4]",
            "logits must be torch.float32 of shape [1, 2], got torch.float32 of shape [1, 1]",
        ]


def test_the_command_takes_a_detector_as_it_was_made(tmp_path: Path) -> None:
    """In training mode."""
    path = tmp_path / "network.onnx"
    model = ["--model", "lensbox.model:FaceDetector", "--format", "onnx-network"]
    assert main(["export", *model, "--output", str(path)]) == 0
    onnx.checker.check_model(path)
