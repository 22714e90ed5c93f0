from collections.abc import Sequence

import pytest
import torch
from short_runs import SHORT_RUN, small_detector
from torch import Tensor

from lensbox.ops import masked_giou_loss
from lensbox.train.loss.assignment import assign
from lensbox.train.loss.detection_loss import (
    Predict,
    TeacherPredictions,
    detection_loss,
    distillation_loss,
    giou_loss,
    teach,
)
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


def images(count: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, 1, 256, 256), generator=generator).float()


def fixed(box: list[float], score: float) -> Predict:
    """A teacher that always says the same of its one anchor."""

    def predict(batch: Tensor) -> tuple[Tensor, Tensor]:
        return torch.tensor(box).expand(len(batch), 1, 4), torch.tensor(score).logit().expand(len(batch), 1)

    return predict


def test_teachers_are_averaged_and_boxes_count_by_scores() -> None:
    taught = teach([[fixed([0.0, 0.0, 8.0, 8.0], 0.6)], [fixed([4.0, 4.0, 16.0, 16.0], 0.2)]], images())
    torch.testing.assert_close(taught.scores, torch.full((2, 1), 0.4))
    expected = torch.tensor([1.0, 1.0, 10.0, 10.0])  # three parts of the first, one of the second
    torch.testing.assert_close(taught.boxes, expected.expand(2, 1, 4))


def test_each_fold_s_images_are_shown_to_the_teacher_that_left_it_out() -> None:
    box = [0.0, 0.0, 8.0, 8.0]
    group = [fixed(box, score) for score in (0.1, 0.5, 0.9)]
    scores = teach([group], images(6)).scores[:, 0]
    torch.testing.assert_close(scores, torch.tensor([0.1, 0.5, 0.9, 0.1, 0.5, 0.9]))
    scores = teach([[fixed(box, 0.3)], group, group], images(6)).scores[:, 0]
    torch.testing.assert_close(scores, torch.tensor([0.5, 1.3, 2.1] * 2) / 3)


def test_loss_of_hand_worked_anchors() -> None:
    boxes = torch.tensor([[[0.0, 0, 10, 10], [50.0, 50, 60, 60]]])
    taught = TeacherPredictions(
        torch.tensor([[[2.0, 0, 12, 10], [0.0, 0, 5, 5]]]), torch.tensor([[0.8, 0.5]])
    )
    logits = torch.zeros(1, 2)  # a score of 0.5: cross entropy is ln 2 whatever the target
    ln2 = 0.6931471805599453
    classification = ((0.8 + 0.2 * 0.75 * 0.25) + (0.5 + 0.5 * 0.75 * 0.25)) * ln2 / 1.3
    # The first boxes share 80 of 120; the second pair shares nothing in a hull of 60 x 60.
    gious = [80 / 120, -(3600 - 125) / 3600]
    weights = [0.64, 0.25]
    # The op divides by at least 1.
    box = sum(w * (1 - g) for w, g in zip(weights, gious, strict=True)) / max(sum(weights), 1)
    loss = distillation_loss(boxes, logits, taught)
    assert float(loss) == pytest.approx(classification + 2 * box, rel=1e-5)


def test_weights_mix_labels_and_teachers() -> None:
    boxes, logits = (value.detach() for value in small_detector(1).eval()(images()))
    taught = teach([[small_detector(2).eval()]], images())
    assert not taught.boxes.requires_grad
    targets = torch.zeros(2, 8, 4)
    targets[:, 0] = torch.tensor([40.0, 40, 80, 90])
    arguments = (boxes, logits, targets, torch.zeros(2, 8, 4))
    labels = detection_loss(*arguments, SHORT_RUN)
    assert float(labels.distillation) == 0
    both = detection_loss(*arguments, SHORT_RUN.replace(label_weight=0.25, distill_weight=2.0), taught)
    alone = distillation_loss(boxes, logits, taught)
    torch.testing.assert_close(both.distillation, alone)
    torch.testing.assert_close(both.loss, 0.25 * labels.loss + 2.0 * alone)
