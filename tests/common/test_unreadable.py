"""Files and folders without read permission: messages of the commands."""

import json
import shutil
import sys
from pathlib import Path

import programs
import pytest
from PIL import Image
from unprivileged import unprivileged

from lensbox.model.weights_file import SHIPPED_WEIGHTS

# Run commands, and print the exit code and the messages of each.
_COMMANDS = """
import contextlib, io, json, sys
from lensbox.common.main import main
ends = []
for arguments in json.loads(sys.argv[1]):
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = main(arguments)
    ends.append((int(code), said.getvalue()))
print(json.dumps(ends))
"""
_COMMAND_LINES = {
    "detect {secret}/photo.jpg {photo} --artifact {good}": (4, "photo.jpg cannot be read: Permission denied"),
    "detect {locked_photo} --artifact {good}": (4, "locked.jpg cannot be read: Permission denied"),
    "detect {photo} --artifact {artifact}": (3, "locked.pt cannot be read: Permission denied"),
    "info {artifact}": (3, "locked.pt cannot be read: Permission denied"),
    "export --weights {weights} --output {secret}.pt": (
        4,
        "locked.safetensors cannot be read: Permission denied",
    ),
    "evaluate --data {secret}": (4, "secret cannot be read: Permission denied"),
    "train --data {secret} --output {secret}.runs --config {config}": (
        2,
        "locked.yaml cannot be read: Permission denied",
    ),
    "export --output {secret}/detector.pt": (2, "detector.pt: Permission denied"),
}


def run(program: str, *arguments: str) -> str:
    """Run a Python program and return its output."""
    return programs.run(*unprivileged(sys.executable, "-c", program, *arguments)).stdout


@pytest.fixture
def places(tmp_path: Path, artifact_path: Path) -> dict[str, Path]:
    """Files and a folder without read permission, and readable files."""
    photo, secret = tmp_path / "photo.jpg", tmp_path / "secret"
    Image.new("RGB", (64, 64)).save(photo)
    locked: dict[str, Path] = {
        "locked_photo": Path(shutil.copy(photo, tmp_path / "locked.jpg")),
        "artifact": Path(shutil.copy(artifact_path, tmp_path / "locked.pt")),
        "weights": Path(shutil.copy(SHIPPED_WEIGHTS, tmp_path / "locked.safetensors")),
        "config": tmp_path / "locked.yaml",
    }
    locked["config"].write_text("steps: 1\n")
    secret.mkdir()
    shutil.copy(photo, secret / "photo.jpg")
    for path in (*locked.values(), secret):
        path.chmod(0)
    return {"photo": photo, "secret": secret, "good": artifact_path, **locked}


def test_messages_have_the_reason(places: dict[str, Path]) -> None:
    lines = [[word.format(**places) for word in line.split()] for line in _COMMAND_LINES]
    ends = json.loads(run(_COMMANDS, json.dumps(lines)))
    for line, (code, said), (expected, message) in zip(
        _COMMAND_LINES, ends, _COMMAND_LINES.values(), strict=True
    ):
        assert (line, code) == (line, expected), said
        assert message in said
        assert "Errno" not in said


def test_processes_all_other_files(places: dict[str, Path]) -> None:
    names = [str(places[name]) for name in ("locked_photo", "photo", "secret")]
    program = "import sys; from lensbox.common.main import main; print(int(main(sys.argv[1:])))"
    printed = run(program, "detect", *names, "--artifact", str(places["good"]))
    *answers, code = printed.splitlines()
    assert code == "4"
    assert [("error" in json.loads(line)) for line in answers] == [True, False, True]
