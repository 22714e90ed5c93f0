"""Folds of photographs that a teacher was not trained on."""

from pathlib import Path

import pytest

from lensbox.train.data.folds import Fold, fold_index, parse_fold, without_fold
from lensbox.train.data.labels import read_labels
from lensbox.train.errors import ConfigError


def test_each_photograph_is_in_one_fold(faces_folder: Path) -> None:
    images, _ = read_labels([faces_folder])
    names = [{image.name for image in without_fold(images, Fold(index, 3))} for index in range(3)]
    for image in images:
        assert [image.name not in kept for kept in names] == [
            fold_index(image.name, 3) == index for index in range(3)
        ]


def test_reads_and_writes_folds() -> None:
    assert parse_fold("1/4") == Fold(0, 4)
    assert str(parse_fold("4/4")) == "4/4"
    for text in ("0/4", "5/4", "1/1", "1", "", "a/4", "1/4/4", "-1/4", "1.0/4"):
        with pytest.raises(ConfigError, match="--leave-out must be a share such as 1/4"):
            parse_fold(text)
