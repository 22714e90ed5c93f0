"""Folds: which photographs a teacher was not trained on."""

from pathlib import Path

import pytest
import torch

from lensbox.train.data.folds import Fold, fold_index, parse_fold, without_fold
from lensbox.train.data.labels import read_labels
from lensbox.train.errors import ConfigError


def test_folds_part_the_photographs(faces_folder: Path) -> None:
    images, _ = read_labels([faces_folder])
    names = [{image.name for image in without_fold(images, Fold(index, 3))} for index in range(3)]
    for image in images:
        assert [image.name not in kept for kept in names] == [
            fold_index(image.name, 3) == index for index in range(3)
        ]


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
