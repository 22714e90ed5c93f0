from pathlib import Path

import pytest
import torch

from lensbox.train.data.folds import Fold, fold_index, parse_fold, without_fold
from lensbox.train.data.image_store import load_images
from lensbox.train.data.labels import read_labels
from lensbox.train.errors import ConfigError
from lensbox.train.settings import TrainConfig
from lensbox.train.views.draws import draw, view_counts
from lensbox.train.views.tiles import place_tiles


def test_folds_part_the_photographs(faces_folder: Path) -> None:
    images, _ = read_labels([faces_folder])
    left = [without_fold(images, Fold(index, 3)) for index in range(3)]
    assert sum(len(images) - len(part) for part in left) == len(images)
    for index, part in enumerate(left):
        assert {image.name for image in images} - {image.name for image in part} == {
            image.name for image in images if fold_index(image.name, 3) == index
        }


def test_folds_of_many_names_are_about_equal() -> None:
    counts = torch.bincount(torch.tensor([fold_index(f"event/{i}.jpg", 4) for i in range(4000)]))
    assert counts.min() > 900


def test_folds_are_written_as_they_are_read() -> None:
    assert parse_fold("1/4") == Fold(0, 4)
    assert str(parse_fold("4/4")) == "4/4"


@pytest.mark.parametrize("text", ["0/4", "5/4", "1/1", "1", "", "a/4", "1/4/4", "-1/4", "1.0/4"])
def test_other_folds_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--leave-out must be a share such as 1/4"):
        parse_fold(text)


@pytest.mark.parametrize("mosaic", [True, False])
def test_every_view_shows_photographs_of_its_fold_alone(faces_folder: Path, mosaic: bool) -> None:
    images, _ = read_labels([faces_folder])
    weights = {"other": 0.3}
    store = load_images(images, "cpu", weights=weights, capacity=8, workers=2, folds=3)
    config = TrainConfig().replace(batch_size=30, mosaic_share=0.4, max_targets=8, max_ignored=8)
    counts = view_counts(config)
    generator = torch.Generator().manual_seed(1)
    seen = set()
    for _ in range(40):
        draws = draw(counts, torch.tensor(float(mosaic)), "cpu")
        uniform = torch.rand(draws.tile.shape, generator=generator)
        tiles = place_tiles(store.tensors, draws._replace(tile=uniform), counts, config)
        views = torch.cat([torch.arange(counts.mosaic).repeat_interleave(4), torch.arange(counts.mosaic, 30)])
        for view, image in zip(views.tolist(), tiles.image.tolist(), strict=True):
            assert fold_index(store.names[image], 3) == view % 3
            seen.add(image)
    assert seen == set(range(len(store)))


def test_within_a_fold_photographs_are_drawn_by_weight(faces_folder: Path) -> None:
    images, _ = read_labels([faces_folder])
    store = load_images(images, "cpu", weights={"other": 0.0}, capacity=8, workers=2, folds=2)
    config = TrainConfig().replace(max_targets=8, max_ignored=8, batch_size=40)
    counts = view_counts(config)
    tiles = place_tiles(store.tensors, draw(counts, torch.ones(()), "cpu"), counts, config)
    assert {store.names[index].split("/")[0] for index in tiles.image.tolist()} == {"0--Event"}


def test_a_fold_without_photographs_is_refused(faces_folder: Path) -> None:
    images, _ = read_labels([faces_folder])
    with pytest.raises(ValueError, match="data must hold photographs to draw of each of 50 folds"):
        load_images(images, "cpu", capacity=8, workers=2, folds=50)
