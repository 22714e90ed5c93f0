"""Files without read permission: the message names the file and the reason."""

import json
import shutil
from pathlib import Path

import programs
from cpp_runtime.conftest import OPS_LIBRARY
from PIL import Image
from programs import Ended
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

    def run(code: int, *arguments: str | Path) -> Ended:
        return programs.run(*unprivileged(runner, *arguments, "--ops", OPS_LIBRARY), code=code)

    paths = [tmp_path / "secret.png", locked / "secret.png"]
    done = run(4, "detect", "--artifact", artifact, "--image", *paths)
    errors = [image["error"] for image in json.loads(done.stdout)["images"]]
    assert errors == [f"image {path}: cannot be read: Permission denied" for path in paths]
    for path in (tmp_path / "secret.pt", locked / "secret.pt"):
        done = run(3, "selftest", "--artifact", path)
        assert f"artifact {path}: cannot be read: Permission denied" in done.stderr
