from collections.abc import Sequence

import pytest
import torch
from short_runs import small_detector
from torch import Tensor

from lensbox.ops import masked_giou_loss
from lensbox.train.loss.assignment import assign
from lensbox.train.loss.detection_loss import detection_loss, giou_loss
from lensbox.train.settings import TrainConfig

CONFIG = TrainConfig().replace(max_targets=4, max_ignored=4)
TARGET = [100.0, 60.0, 120.0, 80.0]


def predictions() -> tuple[Tensor, Tensor]:
    """Return boxes and logits of all anchors, which need gradients."""
    detector = small_detector()
    middle, stride = detector.anchor_centers, detector.anchor_strides[:, None]
    boxes = torch.cat([middle - 2 * stride, middle + 2 * stride], 1)[None]
    return boxes.clone().requires_grad_(), torch.full(boxes.shape[:2], -3.0, requires_grad=True)


def targets(*boxes: Sequence[float]) -> Tensor:
    return torch.tensor([[*boxes, *[[0.0] * 4] * (4 - len(boxes))]])


def test_equals_the_formulas() -> None:
    boxes, logits = (value.detach() for value in predictions())
    torch.manual_seed(0)
    logits = logits + torch.randn_like(logits)
    target = targets(TARGET, [20.0, 20.0, 90.0, 110.0])
    losses = detection_loss(boxes, logits, target, targets(), CONFIG)
    pairs = assign(boxes, logits, target)
    slots, _ = (pairs.quality[0] > 0).nonzero().T
    cells, weights = (values[0][pairs.quality[0] > 0] for values in (pairs.cells, pairs.quality))
    quality = torch.zeros(logits.shape[1]).index_put((cells,), weights)
    positives = pairs.cells[pairs.positive].unique()
    p = logits[0].sigmoid()
    weight = (0.75 * p**2).index_put((positives,), quality[positives])
    entropy = -(quality * p.log() + (1 - quality) * (1 - p).log())
    classification = float((weight * entropy).sum() / max(float(quality.sum()), 1.0))
    assert losses.classification.item() == pytest.approx(classification, rel=1e-4)
    torch.testing.assert_close(losses.box, masked_giou_loss(boxes[0, cells], target[0, slots], weights))
    assert losses.loss.item() == pytest.approx(classification + 2 * losses.box.item(), rel=1e-4)
    assert losses.positives.item() == len(positives)


def test_ignored_boxes_take_cells_out_of_the_background_and_no_target_at_all_is_finite() -> None:
    boxes, logits = predictions()
    losses = detection_loss(boxes, logits, targets(), targets(TARGET), CONFIG)
    losses.loss.backward()
    assert logits.grad is not None
    assert logits.grad[0, 17 * 64 + 27] == 0
    assert logits.grad[0, 0] > 0
    assert losses.box == 0
    assert torch.isfinite(losses.loss)
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
