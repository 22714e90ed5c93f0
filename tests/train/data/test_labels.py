"""The labels of a training run."""

from pathlib import Path

import pytest
from labelled_faces import write_labels

from lensbox.evaluation.data.labels import read_labels
from lensbox.train.data.labels import read_training_labels, shared_photographs
from lensbox.train.settings import TrainInputs


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
