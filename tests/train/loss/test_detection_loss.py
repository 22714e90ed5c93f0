from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from lensbox.model import DetectorConfig, FaceDetector
from lensbox.train.loss.assignment import assign, make_levels
from lensbox.train.loss.detection_loss import detection_loss
from lensbox.train.run.optimizer import Clock, ema_weight, learning_rate, mosaic_on
from lensbox.train.settings import TrainConfig

CONFIG = TrainConfig().replace(max_targets=4, max_ignored=4)
LEVELS = make_levels((4, 8, 16, 32), CONFIG.assignment.level_sizes, 256)
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
    losses = detection_loss(boxes, logits, target, targets(), LEVELS, CONFIG)
    pairs = assign(boxes, logits, target, LEVELS, CONFIG.assignment)
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
    detection_loss(boxes, logits, target, targets(), LEVELS, CONFIG).total.backward()
    assert boxes.grad is not None
    assert logits.grad is not None
    touched = set(boxes.grad.abs().sum(2).nonzero()[:, 1].tolist())
    pairs = assign(boxes.detach(), logits.detach(), target, LEVELS, CONFIG.assignment)
    assert touched == set(pairs.cells[pairs.quality > 0].tolist())
    assert bool((logits.grad[0, list(touched)] < 0).all())
    others = [cell for cell in range(logits.shape[1]) if cell not in touched]
    assert bool((logits.grad[0, others] >= 0).all())


def test_ignored_boxes_take_cells_out_of_the_background() -> None:
    boxes, logits = predictions()
    logits.requires_grad_()
    detection_loss(boxes, logits, targets(), targets(TARGET), LEVELS, CONFIG).total.backward()
    cell = 17 * 64 + 27
    assert logits.grad is not None
    assert logits.grad[0, cell] == 0
    assert logits.grad[0, 0] > 0


def test_no_target_at_all_is_finite() -> None:
    boxes, logits = predictions()
    boxes.requires_grad_()
    losses = detection_loss(boxes, logits, targets(), targets(), LEVELS, CONFIG)
    losses.total.backward()
    assert losses.box == 0
    assert torch.isfinite(losses.total)
    assert boxes.grad is None or bool((boxes.grad == 0).all())


def test_small_boxes_can_weigh_more() -> None:
    boxes, logits = predictions()
    target = targets([100.0, 60.0, 108.0, 68.0], [20.0, 20.0, 90.0, 110.0])
    plain = detection_loss(boxes, logits, target, targets(), LEVELS, CONFIG)
    config = CONFIG.replace(small_box_boost=2.0)
    boosted = detection_loss(boxes, logits, target, targets(), LEVELS, config)
    assert boosted.classification > plain.classification


def test_learning_rate_rises_then_falls() -> None:
    config = TrainConfig().replace(learning_rate=1.0, final_learning_rate=0.1, warmup_progress=0.1)
    rates = [learning_rate(i / 100, config.optimizer) for i in range(101)]
    assert rates[0] == pytest.approx(1e-3)
    assert rates[5] == pytest.approx(0.5)
    assert rates[10] == pytest.approx(1.0)
    assert rates[55] == pytest.approx(0.55)
    assert rates[100] == pytest.approx(0.1)
    assert rates[10:] == sorted(rates[10:], reverse=True)


def test_clock_takes_steps_or_time_whichever_is_further() -> None:
    assert Clock(100).progress(25, 1e9) == 0.25
    clock = Clock(100, seconds=120, start_seconds=20)
    assert clock.progress(0, 20) == 0
    assert clock.progress(0, 70) == 0.5
    assert clock.progress(60, 70) == 0.6
    assert clock.progress(0, 500) == 1
    resumed = Clock(1000, seconds=100, start_seconds=0, start_progress=0.5)
    assert resumed.progress(0, 50) == 0.75


def test_a_run_that_time_had_brought_far_spreads_the_rest_over_its_steps() -> None:
    clock = Clock(300, start_step=100, start_progress=0.5)
    assert clock.progress(100, 0) == 0.5
    assert clock.progress(200, 0) == 0.75
    assert clock.progress(300, 0) == 1
    # A run of steps goes on with exactly the shares it would have had.
    assert Clock(7, start_step=3, start_progress=3 / 7).progress(5, 0) == 5 / 7


def test_average_forgets_the_start_and_mosaics_end() -> None:
    config = TrainConfig().replace(ema_decay=0.999, ema_warmup=10, plain_progress=0.2)
    assert ema_weight(0, config.average) == pytest.approx(0.9)
    assert ema_weight(10**6, config.average) == pytest.approx(0.001)
    # The default reaches back over about a ninth of a run, not over its last few steps.
    assert 1 / ema_weight(15_000, TrainConfig().average) == pytest.approx(15_000 / 9, rel=0.01)
    assert mosaic_on(0.79, config.views) == 1
    assert mosaic_on(0.81, config.views) == 0
