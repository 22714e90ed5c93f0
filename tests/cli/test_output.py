"""The output of `lensbox detect`: table, COCO results, drawings; the progress bar."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from PIL import Image, ImageColor
from programs import run_python

from lensbox.cli import output as module
from lensbox.cli.output import CocoResults, DetectionTable, annotate
from lensbox.common.errors import InputError


def test_a_table_has_aligned_columns() -> None:
    cars = [
        {"box": [1.0, 2.0, 30.25, 40.0], "score": 0.9, "label": "car"},
        {"box": [0.0, 0.0, None, 1.0], "score": 0.25, "label": "bicycle"},
    ]
    results: dict[Path, Any] = {
        Path("a.jpg"): {"detections": cars},
        Path("folder/bb.jpg"): {"detections": []},
        Path("c.jpg"): {"error": "it is bad"},
    }
    table = DetectionTable(list(results), ["car", "bicycle"])
    assert "".join(table(path, result) for path, result in results.items()) == (
        "file           label    score       x1       y1       x2       y2\n"
        "a.jpg          car      0.900      1.0      2.0     30.2     40.0\n"
        "a.jpg          bicycle  0.250      0.0      0.0        -      1.0\n"
        "folder/bb.jpg  nothing\n"
        "c.jpg          error\n"
    )


@pytest.fixture
def ids(tmp_path: Path) -> Path:
    images = [{"id": 7, "file_name": "a.jpg"}, {"id": 8, "file_name": "x\\folder\\bb.jpg"}]
    labels = {"images": images, "categories": [{"id": 9, "name": "car"}, {"id": 4, "name": "bicycle"}]}
    path = tmp_path / "labels.json"
    path.write_text(json.dumps(labels))
    return path


def test_coco_results_have_the_ids_of_the_label_file(ids: Path) -> None:
    files = [Path("a.jpg"), Path("x/folder/bb.jpg")]
    car = {"box": [1.0, 2.0, 30.25, 40.0], "score": 0.9, "label": "car"}
    results = CocoResults(ids, files, ["car", "bicycle"])
    for file in files:
        assert results(file, {"detections": [car, {**car, "score": None}, {**car, "label": "bus"}]}) == ""
    row = {"category_id": 9, "bbox": [1.0, 2.0, 29.25, 38.0], "score": 0.9}
    assert json.loads(results.text()) == [{"image_id": 7, **row}, {"image_id": 8, **row}]


def test_a_detector_without_classes_needs_one_category(ids: Path) -> None:
    with pytest.raises(click.UsageError, match=r"lacks b\.jpg"):
        CocoResults(ids, [Path("b.jpg")], ["car"])
    with pytest.raises(click.UsageError, match="one category for a detector without classes, got 2"):
        CocoResults(ids, [Path("a.jpg")], [])
    ids.write_text('{"images": [{"id": 7, "file_name": "a.jpg"}], "categories": [{"id": 9, "name": "face"}]}')
    results = CocoResults(ids, [Path("a.jpg")], [])
    results(Path("a.jpg"), {"detections": [{"box": [1.0, 2.0, 3.0, 4.0], "score": 0.5}]})
    assert json.loads(results.text())[0]["category_id"] == 9
    for text, words in (
        ("{}", "must be COCO JSON with images"),
        (99_999 * "[", "must be COCO JSON with images"),
        ('{"images": [{"id": 1, "file_name": "a"}, {"id": 2, "file_name": "a"}]}', "own, got 'a' twice"),
    ):
        ids.write_text(text)
        with pytest.raises(InputError, match=words):
            CocoResults(ids, [], [])


def test_draws_a_bar_if_only_stderr_is_a_terminal(random_path: Path, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.jpg").write_text("hello")
    code = (
        "import os, pty, sys\n"
        "line = [sys.executable, '-m', 'lensbox.cli', *sys.argv[2:]]\n"
        "status = pty.spawn(['sh', '-c', 'exec \"$@\" > ' + sys.argv[1], 'sh', *line])\n"
        "sys.exit(os.waitstatus_to_exitcode(status))"
    )
    files = ["b.jpg", tmp_path / "bad.jpg", "a.PNG"]
    shown = run_python(
        *("-c", code, tmp_path / "found", "detect", *files, "--artifact", random_path),
        cwd=photos,
        stdin=subprocess.DEVNULL,
        code=4,
    ).stdout
    assert "3/3" in shown
    # The text on the screen: in each line, the part behind the last erasure.
    lines = [line.rpartition("\x1b[K")[2].rstrip() for line in shown.splitlines()]
    assert any(re.match(r"lensbox detect: .*bad\.jpg must be an image", line) for line in lines)
    assert len((tmp_path / "found").read_text().splitlines()) == 3


COLORS, OUTLINE = [*map(ImageColor.getrgb, module.COLORS)], ImageColor.getrgb(module.OUTLINE)


def test_a_box_is_framed_in_the_color_of_its_class() -> None:
    gray = Image.new("L", (200, 100), 128)
    found = [
        {"box": [120.2, 30.0, 180.0, 80.0], "score": 0.9, "label": "blue"},
        {"box": [20.0, 30.0, 80.0, 80.0], "score": 0.4, "label": "red"},
    ]
    drawn = np.asarray(annotate(gray, found, classes=("red", "blue")))
    assert drawn.shape == (100, 200, 3)
    # One pixel of color just inside the box, the outline beside it, and nothing in the middle.
    for x, color in ((20, COLORS[0]), (120, COLORS[1])):
        assert tuple(drawn[60, x]) == color
        assert tuple(drawn[60, x - 1]) == tuple(drawn[60, x + 1]) == OUTLINE
        assert tuple(drawn[60, x - 2]) == tuple(drawn[60, x + 20]) == (128, 128, 128)
    assert tuple(drawn[79, 150]) == COLORS[1]
    assert np.asarray(gray).max() == 128  # a copy was drawn on


def test_the_tag_is_above_or_inside_the_box() -> None:
    picture = Image.new("RGB", (200, 100))
    for y, inside in ((40.0, False), (3.0, True)):
        drawn = np.asarray(annotate(picture, [{"box": [20.0, y, 120.0, 90.0], "score": 0.873}]))
        above, below = drawn[: int(y) - 1, 25:60], drawn[int(y) + 3 : int(y) + 10, 25:35]
        assert bool((above == COLORS[0]).all(-1).any()) is not inside
        assert bool((below == COLORS[0]).all(-1).any()) is inside


def test_points_are_discs() -> None:
    found = [{"box": [10, 40, 90, 90], "score": 0.5, "extras": {"eyes": [[[40, 60], [70, 60]]], "age": 31.5}}]
    drawn = np.asarray(annotate(Image.new("RGB", (100, 100)), found, points=("eyes",)))
    assert tuple(drawn[60, 40]) == tuple(drawn[60, 70]) == COLORS[0]
    assert not drawn[60, 55].any()


@pytest.mark.parametrize("pair", ["ü/ö", "ł/ś", "кот/тон", "猫/犬", "🐱/🐶"])
def test_names_of_all_scripts_differ(pair: str) -> None:
    one, other = (
        annotate(Image.new("RGB", (640, 480)), [{"box": [9, 99, 400, 400], "score": 0.9, "label": name}])
        for name in pair.split("/")
    )
    assert (np.asarray(one) != np.asarray(other)).any()


def test_extreme_numbers_do_not_fail() -> None:
    picture = Image.new("RGB", (64, 64))
    found: list[dict[str, Any]] = [
        {"box": [-1e30, -1e30, 1e30, 1e30], "score": 2.0, "label": "x" * 1000},
        {"box": [None, 0, 1, 1], "score": 0.5},
        {"box": [50, 50, 10, 10], "score": None, "extras": {"eyes": [[None, 1], [1e300, 4]]}},
        {"box": [5, 5, 5, 5], "score": 0},
    ]
    assert annotate(picture, found, points=("eyes",)).size == (64, 64)
    assert np.asarray(annotate(picture, found[1:2])).max() == 0
    assert annotate(Image.new("RGBA", (1, 1)), found).mode == "RGB"
