"""Rows of labels, checked alike in every layout, and what all readers share."""

from pathlib import Path

import pytest
from labelled_faces import write_labels

from lensbox.evaluation.data.account import Account
from lensbox.evaluation.data.labels import DataError, Row, read_labels, read_rows

NAN = float("nan")


def test_data_without_a_photograph_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"at least one labelled image .*image gone\.png is not in"):
        read_labels([write_labels(tmp_path, "1 2 3 4", name="gone.png")])


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ((9, 2, -3, 4), "width and height must be above 0"),  # x2 < x1
        ((1, 9, 3, -4), "width and height must be above 0"),  # y2 < y1
        ((1, 2, 0, 4), "width and height must be above 0"),
        ((1, 2, NAN, 4), "width and height must be above 0"),
        ((2e6, 2, 3, 4), "all within 1000000 pixels"),
        ((1, 2, 3, 4.0), "same box and class as first; box skipped"),
        ((), "width and height"),
    ],
)
def test_rows_that_are_no_new_boxes_are_skipped(row: tuple[float, ...], rule: str) -> None:
    def parse(values: tuple[float, ...]) -> Row:
        if not values:
            raise ValueError("width and height must be given")
        return Row(*values)  # type: ignore[arg-type]

    account = Account()
    boxes, *_ = read_rows([("first", (1, 2, 3, 4)), ("second", row)], parse, account)
    assert boxes.tolist() == [[1, 2, 4, 6]]
    (problem,) = account.problems
    assert problem.startswith("second: ")
    assert rule in problem


NAMES = "names: {0: cat, 1: dog}\n"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("absent", None, "labels that exist, got"),
        ("text.tar", "not a tar file", "uncompressed tar"),
        ("empty.tar", "\0" * 10240, "must hold"),
        ("x.json", '{"images": [],\n "annotations": [}', ":2: expected JSON"),
        ("x.json", "[]", "must hold lists of objects: images, categories, annotations"),
        (
            "x.json",
            '{"images": [{"id": 1}, {"id": 1}], "annotations": [], "categories": []}',
            "images must have an id each, a number or text, all different, got 1",
        ),
        (
            "x.json",
            '{"images": [], "annotations": [], "categories": [{"id": [1]}]}',
            "categories must have an",
        ),
        ("data.yaml", "train: [", "must be YAML"),
        ("data.yaml", 9999 * "[", "must be YAML"),
        ("data.yaml", "train: images", "names must list the classes, got None"),
        ("data.yaml", NAMES, "train must name a folder of images, got None"),
        ("data.yaml", f"train:\n{NAMES}", "train must name a folder of images, got ''"),
        ("data.yaml", f"train: absent\n{NAMES}", "train must name a folder that exists, got 'absent'"),
        ("data.yaml", f"train: images\n{NAMES}kpt_shape: 5", "kpt_shape must be"),
    ],
)
def test_files_that_hold_no_labels_are_refused(
    tmp_path: Path, name: str, content: str | None, words: str
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=words):
        read_labels([tmp_path / name])
