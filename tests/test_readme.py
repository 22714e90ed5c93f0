"""The README's blocks under "Use", run in a folder that holds the files that they name."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from page_blocks import Shell, commands, read_blocks

from lensbox.cli.samples import save_photos
from lensbox.cli.source import shipped_artifact
from lensbox.ops import library_path

BLOCKS = read_blocks("README.md", section="Use")


@pytest.fixture(scope="module")
def shell(shipped_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """Return a shell in a folder with the shipped detector, a photograph and the op library."""
    folder = tmp_path_factory.mktemp("readme")
    output = folder / "artifacts" / "detector.pt"
    output.parent.mkdir()
    shutil.copy(shipped_path, output)
    shutil.copy(output, folder)
    shutil.copy(library_path(), folder)
    photo, _ = save_photos(output.parent / "photos")
    shutil.copy(photo, folder / "photo.jpg")
    shell = Shell(folder)
    yield shell
    shell.close()


def test_python_blocks(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(shell.folder)
    target = torch.tensor([[[0.0, 0.0, 8.0, 8.0], [0.0, 0.0, 0.0, 0.0]]])
    names: dict[str, Any] = {
        "pred": target + 1,
        "target": target,
        "boxes": torch.tensor([[[0.0, 0.0, 8.0, 8.0], [0.0, 0.0, 8.0, 7.0], [9.0, 9.0, 12.0, 12.0]]]),
        "scores": torch.tensor([[0.9, 0.8, 0.7]]),
        "paths": ["photo.jpg", "missing.jpg"],
    }
    ops, *blocks = (block.text for block in BLOCKS if block.language == "python")
    exec(compile(ops, "README.md", "exec"), names)
    assert names["loss"].item() == pytest.approx(1 - (49 / 79 - 2 / 81))  # by hand
    assert names["counts"].tolist() == [2]
    for text in blocks:
        if not torch.cuda.is_available():
            text = text.replace('device="cuda"', 'device="cpu"')
        exec(compile(text, "README.md", "exec"), names)
    found = [line.split(" ")[:2] for line in capsys.readouterr().out.splitlines()]
    assert [name for name, _ in found] == names["paths"]


def test_commands(shell: Shell) -> None:
    shipped_artifact()  # the first command without an artifact exports it, and says so
    (console,) = (block.text for block in BLOCKS if block.language == "console")
    for command, shown in commands(console):
        assert shell.run(f"{command} --format table") == shown
    for block in BLOCKS:
        for command in block.text.splitlines() if block.language == "sh" else ():
            printed = shell.run(command.replace("curl ", "curl -s "))
            if not command.startswith("lensbox serve"):
                document = json.loads(printed)
                (image,) = document.get("images", [document])
                assert len(image["detections"]) == 1
