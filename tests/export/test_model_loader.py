"""`lensbox export --model module:function --weights F --option key=value`."""

import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import safetensors.torch
import torch
from programs import Lensbox
from small_detectors import Landmarks

from lensbox.export.model_loader import parse_options
from lensbox.runtime import load_artifact

# The module in the user's folder.
MODULE = """
import dataclasses
import pathlib

import torch
from small_detectors import Landmarks


class Bright(Landmarks):
    def __init__(self, width: int = 2, title: str = "bright") -> None:
        super().__init__(width)
        self.specification = dataclasses.replace(self.specification, name=title)


def from_file(weights: pathlib.Path | None = None, width: int = 2):
    detector = Bright(width, title=f"from {weights.name}" if weights else "untrained")
    if weights:
        detector.load_state_dict(torch.load(weights, weights_only=True))
    return detector


def broken():
    return Bright(width=-1)


def no_module():
    return 7


made = Bright()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a working directory with the module `mine.detectors`; forget its modules afterwards."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "detectors.py").write_text(MODULE)
    (tmp_path / "mine" / "half.py").write_text("import nowhere.to_be_found\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.split(".")[0] == "mine":
            del sys.modules[name]


def state() -> dict[str, torch.Tensor]:
    return {name: 2 * value for name, value in Landmarks(2).state_dict().items()}


def test_command_of_the_documentation(folder: Path, lensbox: Lensbox) -> None:
    torch.save(state(), folder / "w.pt")
    arguments = ["--model", "mine.detectors:from_file", "--weights", "w.pt", "--option", "width=2"]
    lensbox("export", *arguments, "--score-threshold", 0.25, "--output", "mine.pt")
    artifact = load_artifact("mine.pt")
    assert artifact.metadata.name == "from w.pt"
    assert artifact.metadata.thresholds == (0.25, 0.5)


@pytest.mark.parametrize(
    ("model", "code", "message"),
    [
        ("mine", 2, "--model must be package.module:function, with a function or class that"),
        ("mine.nothing:f", 2, "got 'mine.nothing:f': No module named 'mine.nothing'"),
        ("builtins:dict", 2, "with known arguments, got 'builtins:dict': no signature"),
        (":f", 2, "such as mine.detectors:Bright, got 'mine.detectors:f'"),
        (":made", 2, "such as mine.detectors:Bright, got 'mine.detectors:made', a Bright object"),
        (":Bright --option height=3", 2, "title: str = 'bright') -> None takes, got height: got"),
        (":Bright --option 3", 2, "must be key=value with an ident"),
        (":Bright --option width=1 width=2", 2, "each key once, got width twice"),
        ("mine.half:f", 3, "importing mine.half raised ModuleNotFoundError: No"),
        (":broken", 3, "mine.detectors:broken raised "),
        (":no_module", 3, "must return a torch.nn.Module, got int"),
        ("small_detectors:NeverAlone", 3, "raised ValueError: images must be several ("),
        (":Bright --weights none.pt", 4, "--weights must be a file, got none.pt"),
        (
            ":Bright --weights w.safetensors --option width=3",
            4,
            "are an --option of mine.detectors:Bright(width",
        ),
        (":Bright --weights inflated.pt", 4, "inflated.pt must hold its records uncompressed"),
        (":from_file --weights pickled.pt", 4, "got objects of torch.nn.modules.container.Sequential and 1"),
        (
            ":from_file --weights w.pt --weights-key ema",
            2,
            "weights: pathlib.Path | None = None, width: int = 2) reads",
        ),
        (":Bright --weights-key ema", 2, "--weights-key must come with --model and --weights"),
    ],
)
def test_names_the_mistake(model: str, code: int, message: str, folder: Path, lensbox: Lensbox) -> None:
    safetensors.torch.save_file(state(), folder / "w.safetensors")
    torch.save(torch.nn.Sequential(torch.nn.ReLU()), folder / "pickled.pt")
    with zipfile.ZipFile(folder / "inflated.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inflated/version", "3\n")
        archive.writestr("inflated/data/0", bytes(2000))
    model = f"mine.detectors{model}" if model.startswith(":") else model
    _, said = lensbox("export", "--model", *model.split(), "--output", "a.pt", code=code)
    assert message in " ".join(said.split())
    assert "Traceback" not in said
    assert not (folder / "a.pt").exists()


def test_parses_values_of_options() -> None:
    values = {"2.5": 2.5, "true": True, '"7"': "7", "[1, 2]": [1, 2], "": "", "x=y": "x=y", "NaN": "NaN"}
    for text, value in values.items():
        assert parse_options([f"key={text}"]) == {"key": value}
