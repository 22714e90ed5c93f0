"""examples/train_own.py trains a detector of two classes, which Lensbox exports and scores."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from ellipses import ellipse
from PIL import Image
from programs import load_example

from lensbox.model import missing
from lensbox.runtime.torchscript import quiet_torchscript


def draw_photographs(folder: Path, count: int) -> Path:
    """Write photographs with a dark disc or square each, and their labels in COCO's format."""
    rng = np.random.default_rng(count)
    images, rows = [], []
    folder.mkdir()
    for index in range(count):
        (x, y), side = rng.integers(0, 60, 2).tolist(), int(rng.integers(25, 40))
        pixels, label = np.full((100, 120, 3), 200, np.uint8), index % 2
        mask = ellipse((x, y, x + side, y + side), 120, 100).numpy() > 0
        mask[y : y + side, x : x + side] |= bool(label)
        pixels[mask] = rng.integers(0, 80, 3)
        Image.fromarray(pixels).save(folder / f"{index}.png")
        images.append({"id": index, "file_name": f"{index}.png"})
        rows.append({"id": index, "image_id": index, "category_id": label, "bbox": [x, y, side, side]})
    names = [{"id": 0, "name": "disc"}, {"id": 1, "name": "square"}]
    (folder / "x.json").write_text(json.dumps({"images": images, "categories": names, "annotations": rows}))
    return folder / "x.json"


def test_learns_two_classes_and_draws_the_curves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data, val = draw_photographs(tmp_path / "data", 16), draw_photographs(tmp_path / "val", 6)
    arguments = [data, "--val", val, "--output", tmp_path / "run", "--epochs", "8"]
    program = load_example("train_own.py", monkeypatch, *map(str, arguments))
    program["main"]()
    printed = capsys.readouterr().out.splitlines()
    losses = [float(line.split()[3].rstrip(",")) for line in printed if line.startswith("epoch")]
    assert len(losses) == 8
    assert losses[-1] < 0.5 * losses[0]
    assert [line.split()[-1] for line in printed if "classes" in line or line.endswith(("disc", "square"))]
    with Image.open(tmp_path / "run" / "curves.png") as picture:
        assert picture.width > 800
    detector = program["Own"]()
    detector.load_state_dict(torch.load(tmp_path / "run" / "weights.pt"))
    assert missing(detector.eval()) == []
    with quiet_torchscript():
        torch.jit.script(detector)
