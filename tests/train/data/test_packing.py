import pytest
import torch

from lensbox.train.data.fake_dataset import FakeDataset, collate
from lensbox.train.data.packing import pack_targets, pad_targets


def test_packs_and_pads_with_ignored_boxes_last():
    boxes = [torch.tensor([[1.0, 1, 2, 2], [3, 3, 4, 4], [5, 5, 6, 6]]), torch.zeros(0, 4), torch.ones(1, 4)]
    ignore = [torch.tensor([True, False, False]), torch.zeros(0).bool(), torch.tensor([True])]
    packed = pack_targets(boxes, ignore)
    assert packed.offsets.tolist() == [0, 3, 3, 4]
    padded, counts, totals = pad_targets(packed, 4)
    assert padded.shape == (3, 4, 4)
    assert padded[0].tolist() == [[3, 3, 4, 4], [5, 5, 6, 6], [1, 1, 2, 2], [0, 0, 0, 0]]
    assert padded[1].abs().sum() == 0
    assert counts.tolist() == [2, 0, 0]
    assert totals.tolist() == [3, 0, 1]


def test_boxes_beyond_capacity_are_dropped():
    packed = pack_targets([torch.ones(5, 4)], [torch.zeros(5).bool()])
    padded, counts, totals = pad_targets(packed, 2)
    assert padded.shape == (1, 2, 4)
    assert counts.tolist() == totals.tolist() == [2]


def test_no_boxes_at_all():
    padded, counts, totals = pad_targets(
        pack_targets([torch.zeros(0, 4)] * 2, [torch.zeros(0).bool()] * 2), 3
    )
    assert padded.shape == (2, 3, 4)
    assert counts.tolist() == totals.tolist() == [0, 0]


def test_lists_of_different_length_are_refused():
    with pytest.raises(ValueError, match="got 1 and 0"):
        pack_targets([torch.zeros(0, 4)], [])


def test_fake_dataset_has_the_articles_distribution():
    data = FakeDataset(600)
    counts = torch.tensor([len(data[i][1]) for i in range(600)]).float()
    # n = floor(|3 z|): P(n = 0) = P(|z| < 1/3) = 0.261, and the mean is 1.90.
    assert abs((counts == 0).float().mean() - 0.261) < 0.06
    assert abs(counts.mean() - 1.90) < 0.25
    image, boxes = data[3]
    again_image, again_boxes = FakeDataset(600)[3]
    assert torch.equal(image, again_image)
    assert torch.equal(boxes, again_boxes)
    assert image.shape == (1, 256, 256)
    assert image.dtype == torch.uint8
    every = torch.cat([data[i][1] for i in range(100)])
    assert bool((every[:, 2:] > every[:, :2]).all())
    assert every.min() >= 0
    assert every.max() <= 256


def test_collate_packs_a_batch():
    data = FakeDataset(5, seed=1)
    images, targets = collate([data[i] for i in range(5)])
    assert images.shape == (5, 1, 256, 256)
    assert targets.offsets[-1] == sum(len(data[i][1]) for i in range(5))
    with pytest.raises(IndexError, match="got 5"):
        data[5]
