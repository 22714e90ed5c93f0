from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from lensbox.model import DetectorConfig, FaceDetector
from lensbox.ops import masked_giou_loss
from lensbox.train.loss.assignment import assign
from lensbox.train.loss.detection_loss import detection_loss, giou_loss
from lensbox.train.settings import TrainConfig

CONFIG = TrainConfig().replace(max_targets=4, max_ignored=4)
TARGET = [100.0, 60.0, 120.0, 80.0]


def predictions() -> tuple[Tensor, Tensor]:
    detector = FaceDetector(DetectorConfig.named("small"))
    middle, stride = detector.anchor_centers, detector.anchor_strides[:, None]
    boxes = torch.cat([middle - 2 * stride, middle + 2 * stride], 1)[None].clone()
    return boxes, torch.full(boxes.shape[:2], -3.0)


def targets(*boxes: Sequence[float]) -> Tensor:
    padded = torch.zeros(1, 4, 4)
    if boxes:
        padded[0, : len(boxes)] = torch.tensor(boxes)
    return padded


def test_equals_a_plain_loop() -> None:
    boxes, logits = predictions()
    torch.manual_seed(0)
    logits += torch.randn_like(logits)
    target = targets(TARGET, [20.0, 20.0, 90.0, 110.0])
    losses = detection_loss(boxes, logits, target, targets(), CONFIG)
    pairs = assign(boxes, logits, target)
    quality = torch.zeros(logits.shape[1])
    box_sum = weight_sum = 0.0
    for slot in range(2):
        for cell, positive, q in zip(
            pairs.cells[0, slot], pairs.positive[0, slot], pairs.quality[0, slot], strict=True
        ):
            if positive:
                quality[cell] = q
                a, b = boxes[0, cell], target[0, slot]
                low, high = torch.maximum(a[:2], b[:2]), torch.minimum(a[2:], b[2:])
                inter = (high - low).clamp(min=0).prod()
                union = (a[2:] - a[:2]).prod() + (b[2:] - b[:2]).prod() - inter
                hull = (torch.maximum(a[2:], b[2:]) - torch.minimum(a[:2], b[:2])).prod()
                box_sum += float(q * (1 - (inter / union - (hull - union) / hull)))
                weight_sum += float(q)
    p = logits[0].sigmoid()
    positives = set(pairs.cells[pairs.positive].tolist())
    is_positive = torch.tensor([cell in positives for cell in range(len(p))])
    entropy = -(quality * p.log() + (1 - quality) * (1 - p).log())
    weight = torch.where(is_positive, quality, 0.75 * p**2)
    expected = float((weight * entropy).sum() / max(float(quality.sum()), 1.0))
    assert losses.classification.item() == pytest.approx(expected, rel=1e-4)
    assert losses.box.item() == pytest.approx(box_sum / max(weight_sum, 1.0), rel=1e-4)
    assert losses.total.item() == pytest.approx(expected + 2 * losses.box.item(), rel=1e-4)
    assert losses.positives.item() == len(positives)
    assert losses.quality.item() == pytest.approx(float(quality.sum()), rel=1e-5)


def test_gradients_reach_positive_cells_only_for_boxes() -> None:
    boxes, logits = predictions()
    boxes.requires_grad_()
    logits.requires_grad_()
    target = targets(TARGET)
    loss = detection_loss(boxes, logits, target, targets(), CONFIG).total
    of_boxes, of_logits = torch.autograd.grad(loss, (boxes, logits))
    touched = set(of_boxes.abs().sum(2).nonzero()[:, 1].tolist())
    pairs = assign(boxes.detach(), logits.detach(), target)
    assert touched == set(pairs.cells[pairs.quality > 0].tolist())
    assert bool((of_logits[0, list(touched)] < 0).all())
    others = [cell for cell in range(logits.shape[1]) if cell not in touched]
    assert bool((of_logits[0, others] >= 0).all())


def test_ignored_boxes_take_cells_out_of_the_background() -> None:
    boxes, logits = predictions()
    logits.requires_grad_()
    loss = detection_loss(boxes, logits, targets(), targets(TARGET), CONFIG).total
    (grad,) = torch.autograd.grad(loss, logits)
    cell = 17 * 64 + 27
    assert grad[0, cell] == 0
    assert grad[0, 0] > 0


def test_no_target_at_all_is_finite() -> None:
    boxes, logits = predictions()
    boxes.requires_grad_()
    losses = detection_loss(boxes, logits, targets(), targets(), CONFIG)
    losses.total.backward()
    assert losses.box == 0
    assert torch.isfinite(losses.total)
    assert boxes.grad is None or bool((boxes.grad == 0).all())


@pytest.mark.filterwarnings("ignore:.*should not be instantiated")  # torch.compile instantiates it
@pytest.mark.parametrize("compiled", [False, True])
def test_giou_loss_in_one_launch_is_masked_giou_loss(device: torch.device, compiled: bool) -> None:
    torch.manual_seed(0)
    corner, size = 200 * torch.rand(2, 6, 9, 2), 50 * torch.rand(2, 6, 9, 2)
    pred, target = torch.cat([corner, corner + size], 3).to(device)
    weight = (4 * torch.rand(6, 9)).floor().to(device)
    ours, theirs = (pred.clone().requires_grad_() for _ in range(2))
    function = torch.compile(giou_loss, fullgraph=True, backend="aot_eager") if compiled else giou_loss
    loss, expected = function(ours, target, weight), masked_giou_loss(theirs, target, weight)
    (grad,), (expected_grad,) = torch.autograd.grad(2 * loss, ours), torch.autograd.grad(2 * expected, theirs)
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)
    assert torch.equal(grad, expected_grad)
    if device.type == "cpu":
        assert torch.equal(loss, expected)
