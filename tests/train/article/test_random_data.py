"""The article's random data."""

import pytest
import torch

from lensbox.ops import collate_packed
from lensbox.train.article.random_data import FakeDataset


def test_fake_dataset_has_the_articles_distribution() -> None:
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


def test_samples_are_indexed_from_the_first_to_the_last() -> None:
    data = FakeDataset(5, seed=1)
    images, targets = collate_packed([data[i] for i in range(5)])
    assert images.shape == (5, 1, 256, 256)
    assert targets.offsets[-1] == sum(len(data[i][1]) for i in range(5))
    with pytest.raises(IndexError, match="got 5"):
        data[5]
