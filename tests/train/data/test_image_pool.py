import multiprocessing
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch

from lensbox.train.data.image_pool import DecodingDataset, ImagePool, WeightedSampler
from lensbox.train.data.image_store import load_images
from lensbox.train.data.labels import read_labels
from lensbox.train.errors import TrainingError


@pytest.mark.parametrize("workers", [0, 1])
def test_photographs_are_exchanged_in_place(faces_folder: Path, workers: int) -> None:
    images, _ = read_labels([faces_folder])
    pool = ImagePool(
        images,
        torch.device("cpu"),
        resident=5,
        weights={"wider": 0.0},
        trims={},
        capacity=4,
        workers=workers,
        batch_size=3,
    )
    everything = load_images(images, "cpu", capacity=4).tensors
    tensors = pool.store.tensors
    address = tensors.images.data_ptr()
    before = tensors.images.clone()
    for _ in range(4):
        pool.refill(wait=True)
    assert pool.replaced == 12
    assert tensors.images.data_ptr() == address
    assert not torch.equal(tensors.images, before)
    for slot in range(5):  # every slot holds one whole photograph of the source that may be drawn
        match = [i for i in range(12) if torch.equal(everything.images[i], tensors.images[slot])]
        assert len(match) == 1
        assert images[match[0]].source == "other"
        assert int(tensors.counts[slot]) == int(everything.counts[match[0]])
        held = sorted(tensors.boxes[slot, : int(tensors.counts[slot])].tolist())
        assert held == sorted(everything.boxes[match[0], : int(everything.counts[match[0]])].tolist())


@pytest.fixture
def pool_of_one_worker(faces_folder: Path) -> Iterator[tuple[ImagePool, BaseProcess]]:
    """A pool at work, and its worker."""
    images, _ = read_labels([faces_folder])
    settings: dict[str, Any] = {"weights": {}, "trims": {}, "capacity": 4, "batch_size": 3}
    others = set(multiprocessing.active_children())
    pool = ImagePool(images, torch.device("cpu"), resident=5, workers=1, **settings)
    pool.refill(wait=True)
    (worker,) = set(multiprocessing.active_children()) - others
    yield pool, worker
    pool.close()


def test_a_worker_that_is_killed_ends_the_run(pool_of_one_worker: tuple[ImagePool, BaseProcess]) -> None:
    """Without it, the photographs on the device would never be exchanged again."""
    pool, worker = pool_of_one_worker

    def refill_often() -> None:
        for _ in range(10):  # some batches were ready
            pool.refill(wait=True)

    worker.kill()
    with pytest.raises(TrainingError, match="workers that decode photographs must go on, got"):
        refill_often()


def test_a_closed_pool_has_no_worker(pool_of_one_worker: tuple[ImagePool, BaseProcess]) -> None:
    pool, worker = pool_of_one_worker
    assert worker.is_alive()
    pool.close()
    assert not worker.is_alive()


def test_unreadable_photographs_are_black(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "bad.jpg").write_bytes(b"nothing")
    (tmp_path / "x_bbx_gt.txt").write_text("bad.jpg\n1\n1 2 3 4\n")
    images, _ = read_labels([tmp_path])
    pixels, size, boxes, _ = DecodingDataset(images, {}, 4)[0]
    assert int(pixels.sum()) == 0
    assert size.tolist() == [1, 1]
    assert boxes.shape == (0, 4)


def test_a_pool_needs_a_source_to_draw_from(faces_folder: Path) -> None:
    images, _ = read_labels([faces_folder])
    settings: dict[str, Any] = {"resident": 5, "trims": {}, "capacity": 4, "workers": 0}
    with pytest.raises(ValueError, match="every source has weight 0"):
        ImagePool(images, torch.device("cpu"), weights={"wider": 0.0, "other": 0.0}, **settings)


def test_sampler_follows_weights_and_seed() -> None:
    sampler = WeightedSampler(torch.tensor([0.0, 1.0, 3.0]), seed=2)
    drawn = [index for _, index in zip(range(2000), sampler, strict=False)]
    assert drawn == [index for _, index in zip(range(2000), sampler, strict=False)]
    assert drawn.count(0) == 0
    assert 0.2 < drawn.count(1) / 2000 < 0.3
