"""Files without read permission: the message names the file and the reason."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from PIL import Image
from unprivileged import unprivileged

from lensbox.ops import library_path


@pytest.fixture
def locked(tmp_path: Path) -> Path:
    """A folder that nobody may enter, with a photograph."""
    folder = tmp_path / "locked"
    folder.mkdir()
    Image.new("L", (64, 64)).save(folder / "photo.png")
    folder.chmod(0)
    return folder


def run(runner: Path, *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    command = unprivileged(runner, *arguments, "--ops", library_path())
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_photographs(runner: Path, artifact: Path, locked: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    Image.new("L", (64, 64)).save(secret)
    secret.chmod(0)
    paths = [secret, locked / "photo.png"]
    ran = run(runner, "detect", "--artifact", artifact, "--image", *paths)
    assert ran.returncode == 4
    errors = [image["error"] for image in json.loads(ran.stdout)["images"]]
    assert errors == [f"image {path}: cannot be read: Permission denied" for path in paths]


def test_an_artifact(runner: Path, artifact: Path, locked: Path, tmp_path: Path) -> None:
    secret = Path(shutil.copy(artifact, tmp_path / "secret.pt"))
    secret.chmod(0)
    for path in (secret, locked / "detector.pt"):
        ran = run(runner, "selftest", "--artifact", path)
        assert ran.returncode == 3
        assert f"artifact {path}: cannot be read: Permission denied" in ran.stderr
