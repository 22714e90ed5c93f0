"""Exports in reduced precision: converted, measured and rejected beyond the tolerance."""

from pathlib import Path
from typing import Any

import pytest
import torch
from small_detectors import Landmarks, Named
from torch import Tensor, nn

from lensbox.export import save_artifact
from lensbox.model import DetectorSpec
from lensbox.runtime import ArtifactError, load_artifact


class Cells(nn.Module):
    """Detect cells of 8 x 8 pixels of a gray canvas, slightly moved; the weights are random."""

    def __init__(self) -> None:
        super().__init__()
        self.specification = DetectorSpec(
            height=96, width=128, channels=1, values={"embedding": (4,)}, score_threshold=0.3
        )
        self.cells = nn.Conv2d(1, 7, 8, stride=8, bias=False)
        generator = torch.Generator().manual_seed(2)
        self.cells.weight.data = torch.randn(7, 1, 8, 8, generator=generator) / 4

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Named:
        # In float32 first, as boxes in float16 are coarse.
        found = self.cells(images.float() / 255.0).float().flatten(2).transpose(1, 2)
        # Even areas would tie, and a GPU breaks ties of `topk` in another order than a CPU.
        order = torch.arange(192, device=found.device) * 1e-3
        scores, cells = (found[..., 0] - order).sigmoid().topk(20)
        found = found.gather(1, cells[:, :, None].expand(-1, -1, 7))
        corner = torch.stack([cells % 16, cells // 16], dim=-1) * 8.0 + found[..., 1:3].sigmoid()
        return {
            "boxes": torch.cat([corner, corner + 6.0], dim=-1),
            "scores": scores,
            "counts": (scores > score_threshold).sum(dim=1),
            "embedding": found[..., 3:],
        }


@pytest.mark.parametrize("dtype", ["bfloat16", "tf32"])
def test_metadata_hold_the_change(dtype: str, tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    metadata = save_artifact(Cells(), path, dtype=dtype)
    artifact = load_artifact(path)
    precision = artifact.metadata.precision
    assert precision is not None
    assert precision == metadata.precision
    assert (precision.dtype, precision.device, precision.pictures) == (dtype, "cpu", 12)
    assert precision.detections > 12
    assert 0 < precision.max_score_change < 0.02
    assert 0 <= precision.median_box_change <= precision.max_box_change <= 2
    expected = torch.bfloat16 if dtype == "bfloat16" else torch.float32
    parameters = [
        node.output().toIValue() for node in artifact.module.detect.graph.findAllNodes("prim::Constant")
    ]
    weights = [value for value in parameters if isinstance(value, Tensor) and value.dim() == 4]
    assert weights
    assert {weight.dtype for weight in weights} == {expected}


class OfEight(Cells):
    """Take batches of 8 only."""

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Named:
        if images.shape[0] != 8:
            raise ValueError(f"images must be 8, got {images.shape[0]}")
        return super().detect(images, score_threshold, iou_threshold)


def test_networks_with_a_fixed_batch_are_converted(tmp_path: Path) -> None:
    metadata = save_artifact(OfEight(), tmp_path / "a.pt2", kind="program", dtype="float16", batches=(8,))
    assert metadata.batch == 8
    assert metadata.precision is not None


@pytest.mark.parametrize(
    ("detector", "options", "message"),
    [
        (Landmarks(), {}, "exported in bfloat16:\n  embedding must be .*, got bfloat16: add embedding"),
        (Cells(), {"tolerance": 0}, r"bfloat16 moves boxes by up to .*at most 0 px \(--tolerance\)"),
        (Cells(), {"dtype": "tf32", "kind": "aoti"}, "tf32 must be compiled for a GPU, got the device cpu"),
    ],
)
def test_rejects_reduced_outputs_large_changes_and_tf32_of_a_cpu(
    detector: Any, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ArtifactError, match=message):
        save_artifact(detector, tmp_path / "a.pt", **{"dtype": "bfloat16", **options})
    assert not list(tmp_path.iterdir())


@pytest.mark.gpu
@pytest.mark.usefixtures("new_gpu_float32")
@pytest.mark.parametrize("dtype", ["tf32", "float16", "bfloat16"])
def test_measures_the_change_on_the_gpu(dtype: str, tmp_path: Path) -> None:
    options: Any = {"dtype": dtype, "device": "cuda", "tolerance": 50}
    path = tmp_path / "a.pt"
    metadata = save_artifact(Cells(), path, **options)
    assert metadata.precision is not None
    assert metadata.precision.device == "cuda"
    # A net this small may be computed without TF32 even where that is allowed.
    assert metadata.precision.max_score_change < 0.02
    assert metadata.precision.max_score_change > 0 or dtype == "tf32"
    assert load_artifact(path, "cuda").self_test().passed
