"""An artifact of a small detector."""

from pathlib import Path

import pytest
from small_detectors import save_random_artifact


@pytest.fixture(scope="session")
def artifact_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_artifact(tmp_path_factory.mktemp("artifact"))
