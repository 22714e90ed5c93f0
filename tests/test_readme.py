"""The README's blocks under "Use", run in a folder that holds the files that they name."""

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from built_runner import REPOSITORY, built_runner
from programs import run, run_lensbox
from serve_process import running_service

from lensbox.common.samples import save_photos
from lensbox.export.pipeline import save_artifact
from lensbox.model import load_detector
from lensbox.ops import library_path

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
USE = README[README.index("\n## Use\n") : README.index("\n## Tested platforms\n")]
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", USE, re.MULTILINE | re.DOTALL)
PYTHON = [text for kind, text in BLOCKS if kind == "python"]
SHELL = [line for kind, text in BLOCKS if kind == "sh" for line in text.splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the shipped detector, a photograph and the op library."""
    folder = tmp_path_factory.mktemp("readme")
    output = folder / "artifacts" / "detector.pt"
    output.parent.mkdir()
    save_artifact(load_detector(), output)
    shutil.copy(output, folder)
    shutil.copy(library_path(), folder)
    photo, _ = save_photos(output.parent / "photos")
    shutil.copy(photo, folder / "photo.jpg")
    return folder


def test_python_blocks(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    target = torch.tensor([[[0.0, 0.0, 8.0, 8.0], [0.0, 0.0, 0.0, 0.0]]])
    names: dict[str, Any] = {
        "pred": target + 1,
        "target": target,
        "boxes": torch.tensor([[[0.0, 0.0, 8.0, 8.0], [0.0, 0.0, 8.0, 7.0], [9.0, 9.0, 12.0, 12.0]]]),
        "scores": torch.tensor([[0.9, 0.8, 0.7]]),
        "paths": ["photo.jpg", "missing.jpg"],
    }
    assert len(PYTHON) == 3
    for text in PYTHON:
        if not torch.cuda.is_available():
            text = text.replace('device="cuda"', 'device="cpu"')
        exec(compile(text, "README.md", "exec"), names)
        if "loss" in names and "detector" not in names:
            assert names["loss"].item() == pytest.approx(1 - (49 / 79 - 2 / 81))  # by hand
            assert names["counts"].tolist() == [2]
    found = names["photo"], capsys.readouterr().out.splitlines()
    assert (found[0].width, found[0].height) == (512, 600)
    assert [line.partition(" ")[0] for line in found[1]] == ["photo.jpg", "missing.jpg"]
    assert "Detections" in found[1][0]
    assert "missing.jpg" in found[1][1].partition(" ")[2]


def test_shell_command(folder: Path) -> None:
    (block,) = (text for kind, text in BLOCKS if kind == "console")
    command, _, shown = block.partition("\n")
    words = shlex.split(command.removeprefix("$ lensbox "))
    assert run_lensbox(*words, "--format", "table", cwd=folder).stdout == shown


def test_device_command(folder: Path) -> None:
    (command,) = (line for line in SHELL if line.startswith("lensbox_runner "))
    found = run(built_runner(), *shlex.split(command)[1:], cwd=folder, env={"LENSBOX_OPS_LIBRARY": ""})
    assert len(json.loads(found.stdout)["images"][0]["detections"]) == 1


def test_service_commands(folder: Path) -> None:
    serve, curl = (shlex.split(line) for line in SHELL if not line.startswith("lensbox_runner "))
    assert serve[:3] == ["lensbox", "serve", "--artifact"]
    with running_service(folder / serve[3]) as url:
        found = run(*(part.replace("http://127.0.0.1:8000", url) for part in curl), cwd=folder)
        assert len(json.loads(found.stdout)["detections"]) == 1
