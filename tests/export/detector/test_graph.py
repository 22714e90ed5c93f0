"""Graphs of `detect`: what torch.export cannot trace, and own methods that such a file cannot hold."""

from pathlib import Path
from typing import Any

import pytest
import torch
from small_detectors import Brightest, Deciding, FittingItsOwnWay, LosingItsOwnWay
from torch import Tensor, nn

from lensbox.common.errors import ArtifactError
from lensbox.export import save_artifact
from lensbox.export.detector.graph import trace_detect
from lensbox.model import DetectorSpec

NO_GRAPH = r"(?s)torch.export cannot make a graph .*\(.*small_detectors\.py:\d+\)"


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (Deciding, "onnx", NO_GRAPH),
        (FittingItsOwnWay, "aoti", "own preprocess cannot be exported: a package holds only detect"),
        (FittingItsOwnWay, "traced", "own preprocess cannot be traced"),
        (LosingItsOwnWay, "traced", "own loss cannot be traced"),
    ],
)
def test_rejects_what_a_format_cannot_hold(
    make: type[Brightest], kind: str, message: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"trace": True} if kind == "traced" else {"kind": kind}
    with pytest.raises(ArtifactError, match=message):
        save_artifact(make(), tmp_path / "detector", **options)
    assert not list(tmp_path.iterdir())


class Pixels(nn.Module):
    """Each pixel is a box; the IoU threshold is a number. op: of `padded_nms`."""

    def __init__(self, op: Any) -> None:
        super().__init__()
        self.specification, self.op = DetectorSpec(4, 4, channels=1), op

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> dict[str, Tensor]:
        corner = torch.cartesian_prod(torch.arange(4.0), torch.arange(4.0))
        boxes = torch.cat([corner, corner + 1], 1).expand(images.shape[0], -1, -1)
        found = self.op(boxes, images.flatten(1) / 255, 0.5, score_threshold, 16, 16)
        return {"boxes": found[0], "scores": found[1], "counts": found[3]}


@pytest.mark.parametrize("name", ["padded_nms", "padded_nms.default"])
def test_thresholds_of_nms_stay_inputs(name: str) -> None:
    op: Any = torch.ops.lensbox.padded_nms
    detector: Any = Pixels(op if name == "padded_nms" else op.default)
    graph = trace_detect(detector, (0.3, 0.5), torch.device("cpu")).module(check_guards=False)
    canvases = torch.arange(0, 256, 16, dtype=torch.uint8).view(1, 1, 4, 4)
    for threshold in (0.1, 0.8):
        found = graph(canvases, torch.tensor(threshold), torch.tensor(0.5))
        expected = detector.detect(canvases, threshold, 0.5)
        torch.testing.assert_close(found, tuple(expected.values()))
