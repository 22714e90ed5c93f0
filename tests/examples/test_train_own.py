"""examples/train_own.py trains a detector of two classes, which Lensbox exports and scores."""

from pathlib import Path

import pytest
import torch
from PIL import Image
from programs import load_example

from lensbox.model import faults_of
from lensbox.runtime.torchscript import quiet_torchscript


def test_learns_two_classes_and_draws_the_curves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = load_example("train_own.py", monkeypatch, "--output", str(tmp_path / "run"), "--epochs", "3")
    program["main"]()
    printed = capsys.readouterr().out.splitlines()
    losses = [float(line.split()[3].rstrip(",")) for line in printed if line.startswith("epoch")]
    assert len(losses) == 3
    assert losses[-1] < 0.5 * losses[0]
    assert [line.split()[-1] for line in printed if "classes" in line or line.endswith(("disc", "square"))]
    with Image.open(tmp_path / "run" / "curves.png") as picture:
        assert picture.width > 800
    detector = program["Own"]()
    detector.load_state_dict(torch.load(tmp_path / "run" / "weights.pt"))
    assert faults_of(detector.eval()) == []
    with quiet_torchscript():
        torch.jit.script(detector)
