"""The face detector: shapes, results and cost."""

import dataclasses

import pytest
import torch
from box_reference import nms_reference
from picture_files import smooth_image
from small_detectors import varied_detector
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from lensbox.model import DetectorConfig, FaceDetector

ANCHORS = 5440


@pytest.fixture(scope="module")
def detector() -> FaceDetector:
    return varied_detector(spread=0.4)


@pytest.fixture(scope="module")
def canvases() -> Tensor:
    return smooth_image(2, 256, 256)[:, None]


@pytest.mark.parametrize(
    ("name", "macs", "parameters"),
    [
        ("base", 160_000_000, (250_000, 270_000)),
        ("small", 90_000_000, (70_000, 110_000)),
        ("large", 3_300_000_000, (3_300_000, 3_500_000)),
    ],
)
def test_cost_stays_within_its_bounds(name: str, macs: int, parameters: tuple[int, int]) -> None:
    detector = FaceDetector(DetectorConfig.named(name)).eval()
    images = torch.zeros(1, 1, 256, 256, dtype=torch.uint8)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        boxes, logits = detector(images)
    assert macs / 2 < counter.get_total_flops() // 2 <= macs  # a multiply-accumulate is two operations
    assert parameters[0] <= sum(value.numel() for value in detector.parameters()) <= parameters[1]
    assert boxes.shape == (1, ANCHORS, 4)
    assert logits.shape == (1, ANCHORS)


def mirror_of(outputs: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the boxes and logits that the mirrored canvas must have."""
    boxes, logits = outputs
    starts = (0, 4096, 5120, 5376)
    grids = [
        torch.arange(n * n).reshape(n, n) + start for n, start in zip((64, 32, 16, 8), starts, strict=True)
    ]
    cells = torch.cat([grid.flip(1).flatten() for grid in grids])
    left, top, right, bottom = boxes[:, cells].unbind(2)
    return torch.stack((256 - right, top, 256 - left, bottom), dim=2), logits[:, cells]


def test_mirrored_detector_averages_a_canvas_and_its_mirror_image(
    detector: FaceDetector, canvases: Tensor
) -> None:
    mirrored = FaceDetector(dataclasses.replace(detector.config, mirrored=True)).eval()
    mirrored.load_state_dict(detector.state_dict())
    with torch.no_grad():
        boxes, logits = mirrored(canvases)
        _, other_logits = mirror_of(detector(canvases.flip(3)))
        torch.testing.assert_close(logits, (detector(canvases)[1] + other_logits) / 2)
        boxes_again, logits_again = mirror_of(mirrored(canvases.flip(3)))
    torch.testing.assert_close(logits_again, logits)
    torch.testing.assert_close(boxes_again, boxes, rtol=1e-4, atol=1e-3)


def test_gradients_reach_every_parameter_under_bfloat16() -> None:
    torch.manual_seed(0)
    detector = FaceDetector(DetectorConfig.named("small"))
    detector.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    with torch.autocast("cpu", torch.bfloat16):
        boxes, logits = detector(torch.randint(0, 256, (2, 1, 256, 256), dtype=torch.uint8))
    assert boxes.dtype == logits.dtype == torch.float32
    targets = torch.tensor([40.0, 60.0, 90.0, 130.0]).expand_as(boxes)
    (torch.ops.lensbox.masked_giou_loss(boxes, targets) + logits.sigmoid().mean()).backward()
    for name, parameter in detector.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


def test_detect_agrees_with_plain_suppression(detector: FaceDetector, canvases: Tensor) -> None:
    all_boxes, logits = (output.detach() for output in detector(canvases))
    ranked = logits[0].sigmoid().sort(descending=True).values
    threshold = float(ranked[149:151].mean())  # 150 anchors of the first canvas are above it
    boxes, scores, counts = detector.detect(canvases, threshold, 0.4).values()
    suppressed = 0
    for image in range(2):
        all_scores = logits[image].sigmoid()
        expected = nms_reference(
            all_boxes[image], all_scores, 0.4, threshold, len(all_scores), len(all_scores)
        )
        suppressed += int((all_scores > threshold).sum()) - len(expected)
        count = int(counts[image])
        assert count == len(expected) < 256
        assert torch.equal(scores[image, :count], all_scores[expected])
        assert torch.equal(boxes[image, :count], all_boxes[image][expected].clamp(0, 256))
        assert not boxes[image, count:].any()
    assert suppressed > 20
    assert not boxes.requires_grad


def test_boxes_are_clipped_to_the_canvas(detector: FaceDetector, canvases: Tensor) -> None:
    assert detector(canvases)[0].min() < 0
    boxes, _, counts = detector.detect(canvases, 0.0, 1.0).values()
    assert counts.tolist() == [256, 256]
    assert boxes.min() >= 0
    assert boxes.max() <= 256
    nothing = detector.detect(canvases, 1.0, 0.5)  # no score is above 1
    assert not any(output.any() for output in nothing.values())
    assert detector.detect(canvases[:0], 0.5, 0.5)["boxes"].shape == (0, 256, 4)


def test_names_wrong_input(detector: FaceDetector, canvases: Tensor) -> None:
    for shape in ((1, 256, 256), (2, 1, 256, 255)):
        with pytest.raises(ValueError, match=r"images must have the shape \[B, 1, 256, 256\], got .*\d"):
            detector(torch.zeros(shape))
    with pytest.raises(ValueError, match="images must be uint8, got bfloat16"):
        detector.detect(canvases.bfloat16(), 0.5, 0.5)
    with pytest.raises(ValueError, match="iou_threshold must be between 0 and 1, got nan"):
        detector.detect(canvases, 0.5, float("nan"))


@pytest.mark.parametrize(("x", "y"), [(48, 200), (150, 130)])
def test_anchors_see_the_picture_at_their_position(detector: FaceDetector, x: int, y: int) -> None:
    images = torch.full((2, 1, 256, 256), 114, dtype=torch.uint8)
    images[1, :, y - 6 : y + 6, x - 6 : x + 6] = 255
    logits = detector(images)[1]
    change = (logits[1] - logits[0]).abs()
    near = (detector.anchor_centers - torch.tensor([x, y])).abs().amax(dim=1) < 48
    first = 0
    for cells in (4096, 1024, 256, 64):
        level = slice(first, first + cells)
        assert change[level][near[level]].mean() > 1.3 * change[level][~near[level]].mean()
        first += cells
