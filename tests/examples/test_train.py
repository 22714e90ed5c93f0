"""examples/train.py: from a table of boxes to what `lensbox train` reads. The quick start's test runs it."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from programs import load_example

from lensbox.evaluation.data.labels import read_labels

HEADER = "file,x1,y1,x2,y2\n"


@pytest.fixture
def photographs(tmp_path: Path) -> Path:
    """A folder with two, one of them in a folder whose name has a space."""
    (tmp_path / "my party").mkdir()
    for name in ("my party/1.PNG", "street.png"):
        Image.fromarray(np.zeros((40, 60), np.uint8)).save(tmp_path / name)
    return tmp_path


def test_the_layout_has_the_boxes_of_the_table(photographs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = photographs / "boxes.csv"
    table.write_text(
        HEADER + "my party/1.PNG,10,20,30,40\nstreet.png,,,,\nmy party\\1.PNG,0.5,1,2,3\n",
        encoding="utf-8-sig",
    )
    write_layout = load_example("train.py", monkeypatch)["write_layout"]
    for _ in range(2):  # over what an earlier run left
        folder = write_layout(table, photographs / "runs" / "train")
    images, problems = read_labels([folder], strict=True)
    assert problems == []
    assert {image.name: image.boxes.tolist() for image in images} == {
        "my party/1.PNG": [[10, 20, 30, 40], [0.5, 1, 2, 3]],
        "street.png": [],
    }
    assert images[0].read_bytes() == (photographs / "my party" / "1.PNG").read_bytes()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file;x1;y1;x2;y2\n", ":1: the columns must be file,x1,y1,x2,y2, got ['file;x1;y1;x2;y2']"),
        (HEADER + "street.png,,,,\nnone.png,1,2,3,4\n", ":3: file must be a .jpg"),
        (HEADER + "street.png,1,2,3\n", ":2: a box must be four numbers, got 1,2,3,"),
        (HEADER + "street.png,30,40,10,20\n", ":2: a box must have x1 < x2 and y1 < y2, got 30,40,10,20"),
    ],
)
def test_names_a_bad_row_with_its_line(
    photographs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    message: str,
) -> None:
    table = photographs / "boxes.csv"
    table.write_text(text)
    output = photographs / "runs"
    program = load_example("train.py", monkeypatch, table, "--val", table, "--output", output)
    assert program["main"]() == 4
    printed = capsys.readouterr()
    assert (printed.out, f"{table}{message}" in printed.err or message in printed.err) == ("", True)
    assert not output.exists()
