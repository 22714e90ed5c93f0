"""Weights files: round trip, metadata, hash, and errors."""

import math
from pathlib import Path

import pytest
import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from lensbox.common.errors import InputError
from lensbox.model import (
    DetectorConfig,
    FaceDetector,
    load_detector,
    read_metadata,
    recommended_threshold,
    save_detector,
    weights_sha256,
)
from lensbox.model.weights_file import SHIPPED_SIZES, misfit, non_finite_weights


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_round_trip(dtype: torch.dtype, detector: FaceDetector, tmp_path: Path) -> None:
    path = tmp_path / "new" / "weights.safetensors"
    save_detector(detector, path, {"recipe": "none"}, dtype)
    with pytest.raises(ValueError, match="must not use the key 'config'"):
        save_detector(detector, path, {"config": "mine"})
    loaded = load_detector(path)
    assert loaded.config == detector.config
    assert not loaded.training
    for (name, value), found in zip(detector.state_dict().items(), loaded.state_dict().values(), strict=True):
        assert found.dtype == value.dtype
        wanted = value.to(dtype).to(value.dtype) if value.is_floating_point() else value
        assert torch.equal(found, wanted), name
    assert read_metadata(path)["recipe"] == "none"
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    stored = safetensors.torch.load_file(path).values()
    assert {value.dtype for value in stored} == {dtype, torch.int64}


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"figures": '{"recommended_threshold": 0.6078}'}, 0.61),
        ({"figures": '{"recommended_threshold": 1.5}'}, 0.5),
        ({"figures": "see the model card"}, 0.5),
        ({}, 0.5),
    ],
)
def test_recommended_threshold(
    detector: FaceDetector, tmp_path: Path, metadata: dict[str, str], expected: float
) -> None:
    save_detector(detector, tmp_path / "w.safetensors", metadata)
    assert recommended_threshold(tmp_path / "w.safetensors") == expected


@pytest.mark.parametrize("size", SHIPPED_SIZES)
def test_shipped_weights_have_the_layout_of_their_size(size: str) -> None:
    assert load_detector(SHIPPED_SIZES[size]).config == DetectorConfig.named(size)


def test_the_hash_depends_on_every_weight_but_not_on_the_memory_format(
    detector: FaceDetector, tmp_path: Path
) -> None:
    other = FaceDetector(detector.config).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    other.load_state_dict(detector.state_dict())
    save_detector(other, tmp_path / "w.safetensors")
    assert weights_sha256(load_detector(tmp_path / "w.safetensors")) == weights_sha256(detector)
    assert other.head32.prediction.bias is not None
    with torch.no_grad():
        other.head32.prediction.bias[4] += 1e-6
    assert weights_sha256(other) != weights_sha256(detector)


class Masked(nn.Module):
    """A module with an attention mask: -inf before the softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.mask: Tensor
        self.register_buffer("mask", torch.full((3, 3), -math.inf).triu(1))

    def get_extra_state(self) -> dict[str, int]:
        return {"version": 2}


def test_masks_may_be_infinite_and_weights_not() -> None:
    module = Masked()
    assert non_finite_weights(module) is None
    assert len(weights_sha256(module)) == 64  # extra state is ignored
    for wrong in (math.nan, math.inf):
        module.mask[0, 0] = wrong
        assert "got 1 of 9 values NaN or infinite in mask" in str(non_finite_weights(module))
    module.mask[0, 0] = 0
    with torch.no_grad():
        module.weight[1] = math.inf
    assert "got 1 of 3 values NaN or infinite in weight" in str(non_finite_weights(module))


TENSOR = {"weight": torch.zeros(3)}
BASE = {"config": DetectorConfig().to_json()}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"path must be a weights file .*w\.safetensors"),
        (safetensors.torch.save(TENSOR), "no 'config' in its metadata"),
        (
            safetensors.torch.save(TENSOR, {"config": '{"x": 1}'}),
            "does not hold a face detector: the detector's config is wrong: 'x' is not a field",
        ),
        (safetensors.torch.save(TENSOR, {"config": "{"}), "does not hold a face detector"),
        (safetensors.torch.save(TENSOR, BASE), r"those of the config: 272 of 272 .*; 1 .* weight \[3\]$"),
    ],
)
def test_rejects_other_files(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "w.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        load_detector(path)


def test_misfit_counts_and_names_tensors() -> None:
    expected = {"a": torch.zeros(2, 3), "b": torch.zeros(4), "lazy": UninitializedParameter()}
    given = {"a": torch.zeros(2, 3), "b": torch.zeros(4), "lazy": torch.zeros(5)}
    assert misfit(given, expected, "the net") is None
    said = misfit({"a": torch.zeros(3), "c": torch.zeros(())}, expected, "the net")
    assert said == (
        "the tensors must be those of the net: 2 of 3 tensors are missing, such as b [4]; 1 tensors are not "
        "in the net, such as c []; 1 tensors have another shape, such as a, which must be [2, 3] and is [3]"
    )
