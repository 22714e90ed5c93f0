"""Files without read permission: the message names the file and the reason."""

import json
import shutil
import subprocess
from pathlib import Path

from cpp_runtime.conftest import OPS_LIBRARY
from PIL import Image
from unprivileged import unprivileged


def test_names_files_without_read_permission(runner: Path, artifact: Path, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir()
    for folder in (tmp_path, locked):
        Image.new("L", (64, 64)).save(folder / "secret.png")
        shutil.copy(artifact, folder / "secret.pt")
        for path in folder.glob("secret.*"):
            path.chmod(0)
    locked.chmod(0)

    def run(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
        command = unprivileged(runner, *arguments, "--ops", OPS_LIBRARY)
        return subprocess.run(command, capture_output=True, text=True, check=False)

    paths = [tmp_path / "secret.png", locked / "secret.png"]
    done = run("detect", "--artifact", artifact, "--image", *paths)
    assert done.returncode == 4
    errors = [image["error"] for image in json.loads(done.stdout)["images"]]
    assert errors == [f"image {path}: cannot be read: Permission denied" for path in paths]
    for path in (tmp_path / "secret.pt", locked / "secret.pt"):
        done = run("selftest", "--artifact", path)
        assert done.returncode == 3
        assert f"artifact {path}: cannot be read: Permission denied" in done.stderr
