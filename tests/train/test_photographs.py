"""Labelled photographs of a run, and the tensors that views are drawn from."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from labelled_faces import write_labels
from picture_files import exif
from PIL import Image

from lensbox.evaluation.data.labels import LabelledImage, read_labels
from lensbox.runtime import read_image
from lensbox.train.photographs import (
    SIDE,
    decode_image,
    fold_index,
    load_images,
    read_training_labels,
    shared_photographs,
    store_tensors,
    trim_boxes,
)
from lensbox.train.settings import TrainConfig, TrainInputs
from lensbox.train.views.make_views import draw
from lensbox.train.views.tiles import place_tiles, view_counts

CONFIG = TrainConfig().replace(batch_size=30, mosaic_share=0.4, max_targets=8, max_ignored=8)


def one_photograph(
    folder: Path, pixels: np.ndarray, orientation: int = 1, name: str = "a.png"
) -> LabelledImage:
    Image.fromarray(pixels).save(folder / name, exif=exif(orientation))
    return LabelledImage(name, folder / name, np.zeros((0, 4)), np.zeros(0, bool), (), np.zeros(0), "x:1")


def test_ignored_boxes_come_last_and_the_most_crowded_photograph_gives_the_capacity() -> None:
    boxes = [torch.tensor([[1.0, 1, 2, 2], [3, 3, 4, 4], [5, 5, 6, 6]]), torch.zeros(0, 4), torch.ones(1, 4)]
    ignore = [torch.tensor([True, False, False]), torch.zeros(0).bool(), torch.tensor([True])]
    pixels, sizes = torch.zeros(3, SIDE, SIDE, dtype=torch.uint8), torch.ones(3, 2)
    store = store_tensors(pixels, sizes, boxes, ignore, torch.ones(3), 4)
    assert store.boxes.shape == (3, 4, 4)
    assert store.boxes[0].tolist() == [[3, 3, 4, 4], [5, 5, 6, 6], [1, 1, 2, 2], [0, 0, 0, 0]]
    assert store.boxes[1].abs().sum() == 0
    assert store.counts.tolist() == [2, 0, 0]
    assert store.totals.tolist() == [3, 0, 1]
    assert store_tensors(pixels, sizes, boxes, ignore, torch.ones(3), 2).boxes.shape == (3, 3, 4)


@pytest.mark.parametrize("orientation", [1, 5, 8])
def test_photographs_are_turned_as_the_runtime_turns_them(tmp_path: Path, orientation: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (30, 40), np.uint8)
    image = one_photograph(tmp_path, pixels, orientation)
    np.testing.assert_array_equal(decode_image(image)[0], read_image(image.path)[0].numpy())
    stored, _ = decode_image(replace(image, orientation="stored"))
    np.testing.assert_array_equal(stored, pixels)
    width, height = load_images([image], "cpu", CONFIG).sizes[0].tolist()
    assert (width, height) == ((30, 40) if orientation > 4 else (40, 30))


def test_data_without_a_readable_photograph_name_the_first_problem(tmp_path: Path) -> None:
    image = one_photograph(tmp_path, np.zeros((30, 40), np.uint8))
    image.path.write_bytes(image.read_bytes()[:50])
    with pytest.raises(ValueError, match=r"at least one readable image .*x:1: image a\.png cannot be read: "):
        load_images([image], "cpu", CONFIG)


def test_trim_cuts_shares_of_the_side() -> None:
    boxes = np.array([[10, 20, 30, 60]], np.float32)
    np.testing.assert_allclose(trim_boxes(boxes, (0.1, 0.25, 0.2, -0.5)), [[12, 30, 26, 80]])


@pytest.mark.parametrize("mosaic", [True, False])
def test_every_view_shows_photographs_of_its_fold_alone(faces_folder: Path, mosaic: bool) -> None:
    images, _ = read_labels([faces_folder])
    store = load_images(images, "cpu", CONFIG.replace(source_weights={"other": 0.3}), folds=3)
    mosaics = view_counts(CONFIG).mosaic
    torch.manual_seed(1)
    views = torch.cat([torch.arange(mosaics).repeat_interleave(4), torch.arange(mosaics, 30)])
    folds, seen = torch.tensor(sorted(fold_index(image.name, 3) for image in images)), set()
    for _ in range(30):
        draws = draw(CONFIG, torch.tensor(float(mosaic)))
        tiles = place_tiles(store, draws.tile, draws.mosaic_on, CONFIG)
        assert torch.equal(folds[tiles.image], views % 3)
        seen.update(tiles.image.tolist())
    assert seen == set(range(len(images)))


@pytest.mark.parametrize(
    ("weights", "folds", "words"),
    [
        ({"wider": 0.0, "other": 0.0}, 1, "every source has weight 0"),
        ({}, 50, "photographs to draw of each of 50 folds"),
    ],
)
def test_photographs_that_cannot_be_drawn_are_refused(
    faces_folder: Path, weights: dict[str, float], folds: int, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        load_images(read_labels([faces_folder])[0], "cpu", CONFIG.replace(source_weights=weights), folds)


def test_photographs_with_the_same_name_and_boxes_are_shared(tmp_path: Path) -> None:
    images, _ = read_labels([write_labels(tmp_path, "10 20 30 40")])
    assert shared_photographs(images, images) == ["a.png"]
    assert shared_photographs(read_labels([write_labels(tmp_path, "10 20 30 41")])[0], images) == []


def test_accounts_are_logged_and_data_without_a_box_cause_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "lensbox")
    data, val, accounts = read_training_labels(TrainInputs(data=(write_labels(tmp_path),)))
    assert (len(data), val) == (1, [])
    assert accounts["data"]["counts"]["photographs without boxes"] == 1
    assert "the labels of --data:" in caplog.text
    assert "all 1 photographs are background" in caplog.text
