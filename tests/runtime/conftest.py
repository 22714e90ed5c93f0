"""Loaded artifacts for the tests of the runtime."""

from pathlib import Path

import pytest
from small_detectors import RedAndBlue

from lensbox.export import save_artifact
from lensbox.runtime import Artifact, load_artifact


@pytest.fixture(scope="session")
def artifact(artifact_path: Path) -> Artifact:
    return load_artifact(artifact_path)


@pytest.fixture(scope="session")
def colors(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """Load a detector with two classes."""
    path = tmp_path_factory.mktemp("colors") / "detector.pt"
    save_artifact(RedAndBlue(), path)
    return load_artifact(path)
