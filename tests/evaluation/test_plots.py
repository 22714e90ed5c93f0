"""The pictures of an evaluation, and which mistakes they show."""

import sys
from pathlib import Path

import numpy as np
import pytest
from labelled_faces import write_labels
from PIL import Image
from programs import Lensbox
from small_detectors import RedAndBlue

from lensbox.evaluation import plots
from lensbox.evaluation.data.labels import read_labels
from lensbox.evaluation.evaluate import evaluate
from lensbox.export import save_artifact

RED, BLUE = (250, 10, 10), (10, 10, 250)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A red square that is labelled blue, a red one without a label, and a gray label."""
    pixels = np.full((192, 320, 3), 110, np.uint8)
    for x in (40, 160):
        pixels[40:64, x : x + 24] = RED
    write_labels(tmp_path, "40 40 24 24 0 0 0 0 0 0 blue", "240 100 50 50 0 0 0 0 0 0 red", pixels=pixels)
    Image.fromarray(pixels[:, :100]).convert("L").save(tmp_path / "images" / "gray.png")
    with (tmp_path / "x_bbx_gt.txt").open("a") as file:
        file.write("gray.png\n0\n")
    return tmp_path


def test_the_worst_mistakes_are_false_alarms_and_misses_by_name(folder: Path) -> None:
    figures = evaluate(RedAndBlue(), read_labels([folder])[0])
    mistakes = plots._mistakes(figures, [*figures.classes], figures.recommended_threshold)
    titles = [title.split(": ")[1] for _, _, title in mistakes]
    assert "is blue" in titles
    assert "false alarm" in titles
    assert [title for _, _, title in mistakes if "missed" in title] == ["red, 50 px: missed"]
    assert len(mistakes) <= plots.MISTAKES


def test_four_pictures_are_written(folder: Path, lensbox: Lensbox) -> None:
    save_artifact(RedAndBlue(), folder / "detector.pt")
    output = folder / "new" / "pictures"
    lensbox("evaluate", "--data", folder, "--artifact", folder / "detector.pt", "--plots", output)
    names = sorted(path.name for path in output.iterdir())
    assert names == ["confusion.png", "f1.png", "mistakes.png", "precision_recall.png"]
    for name in names:
        with Image.open(output / name) as picture:
            assert np.asarray(picture.convert("L")).std() > 5  # not blank


def test_without_matplotlib_nothing_is_scored_and_the_extra_is_named(
    folder: Path, lensbox: Lensbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.delitem(sys.modules, "lensbox.evaluation.plots")
    printed, said = lensbox("evaluate", "--data", folder, "--plots", folder, code=3)
    assert "package 'matplotlib' is not installed" in said
    assert "pip install 'lensbox[evaluate]'" in said
    assert (printed, "the labels:" in said) == ("", False)
