"""The pool of photographs, and the folds they belong to."""

import dataclasses
import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from lensbox.train.data.image_pool import ImagePool, draw_indices
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
def pool(faces_folder: Path) -> Iterator[ImagePool]:
    """A pool at work."""
    settings: dict[str, Any] = {"weights": {}, "trims": {}, "capacity": 4, "batch_size": 3}
    pool = ImagePool(read_labels([faces_folder])[0], torch.device("cpu"), resident=5, workers=1, **settings)
    pool.refill(wait=True)
    yield pool
    pool.close()


def test_failing_threads_end_the_run(pool: ImagePool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the photographs on the device would never be exchanged again."""

    def broken(*_: object) -> None:
        raise MemoryError("no memory")

    def refill_often() -> None:
        for _ in range(10):  # some batches were ready
            pool.refill(wait=True)

    monkeypatch.setattr("lensbox.train.data.image_pool.try_prepare", broken)
    with pytest.raises(TrainingError, match="threads that decode photographs must go on, got MemoryError"):
        refill_often()


def test_a_closed_pool_has_no_threads(pool: ImagePool) -> None:
    before = threading.active_count()
    pool.close()
    assert threading.active_count() <= before - 2


def test_unreadable_photographs_are_black(pool: ImagePool, faces_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.jpg").write_bytes(b"nothing")
    good = read_labels([faces_folder])[0][0]
    bad = dataclasses.replace(good, path=tmp_path / "bad.jpg", offset=0, size=-1)
    pixels, sizes, boxes, counts, totals = pool._decode([bad, good])
    assert int(pixels[0].sum()) == 0
    assert sizes[0].tolist() == [1, 1]
    assert boxes[0].abs().sum() == 0
    assert (int(counts[0]), int(totals[0])) == (0, 0)
    assert counts[1] > 0


def test_a_pool_needs_a_source_to_draw_from(faces_folder: Path) -> None:
    images, _ = read_labels([faces_folder])
    settings: dict[str, Any] = {"resident": 5, "trims": {}, "capacity": 4, "workers": 0}
    with pytest.raises(ValueError, match="every source has weight 0"):
        ImagePool(images, torch.device("cpu"), weights={"wider": 0.0, "other": 0.0}, **settings)


def test_indices_follow_weights_and_seed() -> None:
    weights = torch.tensor([0.0, 1.0, 3.0])
    drawn = list(islice(draw_indices(weights, 2), 2000))
    assert drawn == list(islice(draw_indices(weights, 2), 2000))
    assert drawn.count(0) == 0
    assert 0.2 < drawn.count(1) / 2000 < 0.3
