"""An artifact for the built lensbox_runner."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def artifact(random_path: Path) -> Path:
    return random_path
