"""Files and folders without read permission: each command names the file and the reason."""

import json
import shutil
import sys
from pathlib import Path

import programs
from PIL import Image
from unprivileged import unprivileged

from lensbox.model.weights_file import SHIPPED_WEIGHTS

# Run commands, and print the exit code and the output of each.
_PROGRAM = """
import contextlib, io, json, sys
from lensbox.common.main import main
for arguments in json.loads(sys.argv[1]):
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        code = main(arguments)
    print(json.dumps((int(code), said.getvalue())))
"""
# Command, exit code, and the end of the name in the message.
_COMMANDS = [
    ("detect {locked}.jpg {photo} {locked}.folder --artifact {good}", 4, "locked.jpg cannot be read"),
    ("detect {photo} --artifact {locked}.pt", 3, "locked.pt cannot be read"),
    ("info {locked}.pt", 3, "locked.pt cannot be read"),
    ("export --weights {locked}.safetensors --output {locked}.new", 4, "locked.safetensors cannot be read"),
    ("evaluate --data {locked}.folder", 4, "locked.folder cannot be read"),
    ("train --data {locked}.folder --output {locked}.new --config {locked}.yaml", 2, "locked.yaml cannot be"),
    ("export --output {locked}.folder/detector.pt", 2, "detector.pt"),
]


def test_messages_have_the_reason(tmp_path: Path, artifact_path: Path) -> None:
    photo, locked = tmp_path / "photo.jpg", tmp_path / "locked"
    Image.new("RGB", (64, 64)).save(photo)
    for name, source in (("jpg", photo), ("pt", artifact_path), ("safetensors", SHIPPED_WEIGHTS)):
        shutil.copy(source, f"{locked}.{name}")
    Path(f"{locked}.yaml").write_text("steps: 1\n")
    Path(f"{locked}.folder").mkdir()
    for path in tmp_path.glob("locked.*"):
        path.chmod(0)
    places = {"photo": photo, "locked": locked, "good": artifact_path}
    lines = [[word.format(**places) for word in command.split()] for command, _, _ in _COMMANDS]
    done = programs.run(*unprivileged(sys.executable, "-c", _PROGRAM, json.dumps(lines)))
    ends = [json.loads(line) for line in done.stdout.splitlines()]
    for (command, code, part), (actual, said) in zip(_COMMANDS, ends, strict=True):
        assert (command, actual) == (command, code), said
        assert f"{part}" in said
        assert "Permission denied" in said
        assert "Errno" not in said
    answers = [json.loads(line) for line in ends[0][1].splitlines() if line.startswith("{")]
    assert [("error" in answer) for answer in answers] == [True, False, True]
