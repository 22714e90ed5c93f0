"""The ONNX file of the network: what it holds, and that it computes what PyTorch computes."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

from lensbox.common.main import main
from lensbox.export.formats import onnx_network
from lensbox.export.formats.onnx import OnnxExportError, to_onnx
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


@pytest.mark.parametrize("batch", [1, 5])
def test_onnxruntime_agrees_with_pytorch(detector: FaceDetector, network_path: Path, batch: int) -> None:
    images = torch.randint(0, 256, (batch, 1, 256, 256), dtype=torch.uint8)
    session = onnxruntime.InferenceSession(network_path, providers=["CPUExecutionProvider"])
    boxes, logits = session.run(["boxes", "logits"], {"images": images.numpy()})
    with torch.no_grad():
        expected_boxes, expected_logits = detector(images)
    np.testing.assert_allclose(boxes, expected_boxes, rtol=1e-4, atol=0.01)
    np.testing.assert_allclose(logits, expected_logits, rtol=0, atol=1e-3)


def test_a_network_that_disagrees_is_refused(
    detector: FaceDetector, network_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = onnx.load(network_path)  # of the same detector, in place of the exporter's
    monkeypatch.setattr(onnx_network, "to_onnx", lambda *_: model)
    onnx_network.onnx_network(detector)
    bias = next(value for value in model.graph.initializer if value.name == "head4.prediction.bias")
    bias.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(bias) + 0.1, bias.name))
    with pytest.raises(
        OnnxExportError, match=r"onnxruntime disagrees with PyTorch: .*logits differ by up to 0\.1"
    ):
        onnx_network.onnx_network(detector)


def test_batch_norm_that_stays_is_an_error() -> None:
    # Without a convolution there is nothing to fold it into.
    with pytest.raises(OnnxExportError, match="1 batch norms are not folded"):
        to_onnx(nn.Sequential(nn.ReLU(), nn.BatchNorm2d(1)).eval(), torch.zeros(2, 1, 4, 4), ["out"])


def test_the_command_takes_a_detector_as_it_was_made(tmp_path: Path) -> None:
    """A new network is in training mode."""
    path = tmp_path / "network.onnx"
    model = ["--model", "lensbox.model:FaceDetector", "--format", "onnx-network"]
    assert main(["export", *model, "--output", str(path)]) == 0
    onnx.checker.check_model(path)
