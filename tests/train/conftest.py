"""Synthetic photographs of faces, ready for training, and networks of a few layers."""

from pathlib import Path

import pytest
from labelled_faces import faces_folder, faces_shard, lensbox_on_cpu  # noqa: F401
from short_runs import SHORT_RUN
from small_detectors import TINY

from lensbox.evaluation.data.labels import read_labels
from lensbox.model import DetectorConfig
from lensbox.train.photographs import StoreTensors, load_images


@pytest.fixture(scope="session")
def store(faces_folder: Path) -> StoreTensors:  # noqa: F811
    """The same photographs, ready for drawing views on the CPU."""
    return load_images(read_labels([faces_folder])[0], "cpu", SHORT_RUN)


@pytest.fixture(autouse=True)
def _few_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train networks of a few layers where the size `small` is asked for."""
    named = DetectorConfig.named
    monkeypatch.setattr(DetectorConfig, "named", lambda name: TINY if name == "small" else named(name))
