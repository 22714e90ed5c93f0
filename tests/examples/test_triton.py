"""examples/triton_server/make_repository.py writes models and configurations that fit each other."""

from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
from google.protobuf import text_format
from programs import load_example
from torch import Tensor
from tritonclient.grpc import model_config_pb2 as triton

from lensbox.export.verify.pictures import drawn
from lensbox.model import FaceDetector

PROGRAM = "triton_server/make_repository.py"


def config_of(folder: Path) -> tuple[Any, dict[str, tuple[str, list[int]]]]:
    """Return the configuration, and datatypes and dimensions by the tensors' names."""
    config = text_format.Parse((folder / "config.pbtxt").read_text(encoding="utf-8"), triton.ModelConfig())
    assert config.name == folder.name
    tensors = [*config.input, *config.output]
    return config, {one.name: (triton.DataType.Name(one.data_type), list(one.dims)) for one in tensors}


def assert_found(detector: Any, canvases: Tensor, thresholds: tuple[float, float], found: Any) -> None:
    with torch.no_grad():
        wanted = detector.detect(canvases, *thresholds)
    assert int(wanted["counts"].sum()) > 10
    for value, expected in zip(found, wanted.values(), strict=True):
        torch.testing.assert_close(torch.as_tensor(value), expected, rtol=1e-4, atol=1e-3)


def test_an_onnx_file_gets_constant_thresholds(
    tmp_path: Path, onnx_path: Path, detector: FaceDetector, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_example(PROGRAM, monkeypatch, tmp_path, "--onnx", onnx_path)["main"]() == 0
    folder = tmp_path / "face_detector_onnx"
    config, tensors = config_of(folder)
    assert (config.backend, config.max_batch_size) == ("onnxruntime", 32)
    assert config.HasField("dynamic_batching")
    assert config.output[2].HasField("reshape")
    assert tensors == {
        "images": ("TYPE_UINT8", [1, 256, 256]),
        "boxes": ("TYPE_FP32", [256, 4]),
        "scores": ("TYPE_FP32", [256]),
        "counts": ("TYPE_INT32", [1]),
    }
    session = onnxruntime.InferenceSession(folder / "1" / "model.onnx", providers=["CPUExecutionProvider"])
    canvases = drawn(detector).canvases
    found = session.run([output.name for output in config.output], {"images": canvases.numpy()})
    assert_found(detector, canvases, (0.25, 0.4), found)
