"""What the inputs promise to the peers."""

import pytest
import torch
from box_reference import nms_reference as nms_by_loop

from lensbox.bench.ops.inputs import make_loss_batch, make_nms_batch
from lensbox.ops.reference import nms_reference

CPU = torch.device("cpu")


@pytest.mark.parametrize("fill", [None, 0.0, 0.3, 1.0])
def test_padding_is_zero_and_at_the_end(fill: float | None) -> None:
    batch = make_loss_batch(9, 33, fill, torch.bfloat16, torch.uint8, CPU)
    valid = batch.target[..., 3] != 0
    assert valid.sum(1).tolist() == list(batch.counts)
    assert all(bool(row[:count].all()) for row, count in zip(valid, batch.counts, strict=True))
    assert int(batch.target[~valid].count_nonzero()) == 0
    if fill in (0.0, 1.0):
        assert batch.valid == fill * 9 * 33


def test_counts_follow_the_article() -> None:
    counts = torch.tensor(make_loss_batch(20_000, 16, None, torch.float32, torch.uint8, CPU).counts).double()
    # P(|N(0, 3)| < 1) and the mean of floor(|N(0, 3)|), by the normal distribution's tables.
    assert float((counts == 0).double().mean()) == pytest.approx(0.2611, abs=0.01)
    assert float(counts.mean()) == pytest.approx(1.909, abs=0.04)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_coordinates_are_exact_and_never_tie(dtype: torch.dtype) -> None:
    batch = make_loss_batch(64, 64, 1.0, dtype, torch.uint8, CPU)
    pred, target = batch.pred.double(), batch.target.double()
    assert bool((pred % 2 == 1).all())
    assert bool((target % 2 == 0).all())
    assert float(pred.max()) <= 255
    for boxes in (pred, target):
        assert bool((boxes[..., 2:] > boxes[..., :2]).all())


def test_packed_and_listed_targets_are_the_padded_ones() -> None:
    batch = make_loss_batch(7, 5, 0.5, torch.float32, torch.int16, CPU)
    rebuilt = torch.zeros_like(batch.target)
    for image, boxes in enumerate(batch.boxes):
        rebuilt[image, : len(boxes)] = boxes
    assert torch.equal(rebuilt, batch.target)
    values, offsets = batch.packed
    assert torch.equal(values, torch.cat(batch.boxes))
    assert offsets.diff().tolist() == list(batch.counts)


def test_a_clone_has_memory_of_its_own() -> None:
    batch = make_loss_batch(2, 3, 1.0, torch.float32, torch.uint8, CPU)
    clone = batch.clone()
    assert torch.equal(clone.target, batch.target)
    assert clone.target.data_ptr() != batch.target.data_ptr()
    assert clone.pred.data_ptr() != batch.pred.data_ptr()


def test_scores_of_an_image_differ() -> None:
    batch = make_nms_batch(3, 500, CPU)
    assert all(len(row.unique()) == 500 for row in batch.scores)
    assert bool((batch.boxes == batch.boxes.round()).all())
    boxes, scores, images = batch.flat
    assert torch.equal(boxes[images == 1], batch.boxes[1])
    assert torch.equal(scores[images == 2], batch.scores[2])


def test_nms_reference_agrees_with_a_plain_loop() -> None:
    batch = make_nms_batch(2, 150, CPU)
    kept = nms_reference(batch.boxes, batch.scores, 0.3)
    for image in range(2):
        expected = nms_by_loop(batch.boxes[image], batch.scores[image], 0.3, -1.0, 150, 150)
        assert kept[image].nonzero().flatten().tolist() == sorted(expected)
        assert len(expected) < 150
