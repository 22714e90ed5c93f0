"""`padded_nms` in operators of ONNX against the op itself, in onnxruntime and in ONNX's own evaluator."""

import numpy as np
import onnx
import onnx.reference
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from lensbox.common.errors import ArtifactError
from lensbox.export.detector.graph import tensor_thresholds, trace
from lensbox.export.formats.onnx import translated
from lensbox.runtime.file.archive import INPUTS

OUTPUTS = ("boxes", "scores", "indices", "counts")
COUNT = 40


def problem(seed: int, batch: int) -> Tensor:
    """Return boxes, scores and categories side by side, float32 [batch, 40, 6].

    The boxes lie at whole pixels, some inverted. Many scores are equal, some NaN; categories are odd.
    """
    generator = torch.Generator().manual_seed(seed)
    boxes = torch.randint(0, 24, (batch, COUNT, 4), generator=generator).float()
    boxes[..., 2:] += torch.randint(0, 12, (batch, COUNT, 2), generator=generator)
    scores = torch.randint(0, 12, (batch, COUNT, 1), generator=generator) / 10
    scores[:, ::9] = torch.nan
    labels = torch.tensor([-7.0, 0.0, 3.0, 100_000.0])
    categories = labels[torch.randint(0, 4, (batch, COUNT, 1), generator=generator)]
    return torch.cat([boxes, scores, categories], dim=2)


class Suppression(nn.Module):
    """Takes boxes, scores and categories side by side, float32 [B, 40, 6], as the images of a detector."""

    def __init__(self, candidates: int, slots: int, by_category: bool) -> None:
        super().__init__()
        self.candidates, self.slots, self.by_category = candidates, slots, by_category

    def forward(self, images: Tensor, score_threshold: Tensor, iou_threshold: Tensor) -> tuple[Tensor, ...]:
        with tensor_thresholds():
            return self.suppress(images, score_threshold, iou_threshold)  # type: ignore[arg-type]

    def suppress(self, images: Tensor, score_threshold: float, iou_threshold: float) -> tuple[Tensor, ...]:
        boxes, scores = images[..., :4], images[..., 4]
        categories = images[..., 5].long() if self.by_category else None
        found: tuple[Tensor, ...] = torch.ops.lensbox.padded_nms(
            boxes, scores, iou_threshold, score_threshold, self.candidates, self.slots, categories
        )
        return found


def model_of(module: Suppression) -> onnx.ModelProto:
    return translated(trace(module.eval(), problem(0, 2), (0.5, 0.5)), INPUTS, OUTPUTS)


def feed(images: Tensor, score_threshold: float, iou_threshold: float) -> dict[str, np.ndarray]:
    thresholds = {"score_threshold": score_threshold, "iou_threshold": iou_threshold}
    return {
        "images": images.numpy(),
        **{name: np.array(value, np.float32) for name, value in thresholds.items()},
    }


@pytest.mark.parametrize(
    ("candidates", "slots", "by_category"),
    [(17, 5, True), pytest.param(COUNT, 25, True, marks=pytest.mark.exhaustive), (1000, 64, False)],
)
def test_keeps_what_the_op_keeps(candidates: int, slots: int, by_category: bool) -> None:
    module = Suppression(candidates, slots, by_category)
    model = model_of(module)
    assert {imported.domain for imported in model.opset_import} == {""}
    session = onnxruntime.InferenceSession(model.SerializeToString())
    kept = 0
    for seed in range(6):
        for batch in (1, 3):
            images = problem(seed, batch)
            for thresholds in ((0.5, 0.5), (0.05, 0.3), (-np.inf, 1.0), (0.0, 0.0), (1.0, 0.5), (2.0, 0.5)):
                expected = module.suppress(images, *thresholds)
                for name, wanted, value in zip(
                    OUTPUTS, expected, session.run(None, feed(images, *thresholds)), strict=True
                ):
                    np.testing.assert_array_equal(value, wanted.numpy(), err_msg=f"{name}, {thresholds}")
                kept += int(expected[3].sum())
    assert kept > 500


def test_rejects_double_precision() -> None:
    module = Suppression(10, 10, by_category=False)
    module.suppress = lambda images, *thresholds: Suppression.suppress(  # type: ignore[method-assign]
        module, images.double(), *thresholds
    )
    with pytest.raises(ArtifactError, match=r"at most 32 bits, for ONNX, got DOUBLE"):
        model_of(module)
