"""Labels in the WIDER FACE layout, in folders and tar shards."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lensbox.evaluation.data.account import Account
from lensbox.evaluation.data.labels import read_labels
from lensbox.evaluation.data.wider_face import parse_annotations

GOOD = """a/one.jpg
2
10 20 30 40 0 0 0 0 0 0 traffic  light
1.5 2.5 3 4 0 0 0 1 0 0
b\\none.jpg
0
0 0 0 0 0 0 0 0 0 0
"""


def test_reads_ignored_boxes_classes_and_images_without_boxes(tmp_path: Path) -> None:
    (tmp_path / "x_bbx_gt.txt").write_text(GOOD)
    for name in ("a/one.jpg", "b/none.jpg"):
        (tmp_path / "images" / name).parent.mkdir(parents=True)
        Image.new("L", (50, 50)).save(tmp_path / "images" / name)
    (one, none), problems = read_labels([tmp_path])
    assert problems == []
    assert (one.name, one.source, none.name) == ("a/one.jpg", "a", "b/none.jpg")
    np.testing.assert_array_equal(one.boxes, [[10, 20, 40, 60], [1.5, 2.5, 4.5, 6.5]])
    assert one.ignore.tolist() == [False, True]
    assert one.classes == ("traffic light", "")
    assert none.boxes.shape == (0, 4)


@pytest.mark.parametrize(
    ("text", "line", "words", "kept"),
    [
        ("head\na.jpg\n1\n1 1 1 1\n", 1, "expected an image name, got 'head'", ["a.jpg"]),
        ("a.jpg\nmany\n1 2 3 4\nb.jpg\n1\n1 1 1 1\n", 1, "number of boxes of a.jpg, got 'many'", ["b.jpg"]),
        ("a.jpg\n3\n1 2 3 4\nb.jpg\n1\n1 1 1 1\n", 1, "announces 3 boxes and has 1", ["b.jpg"]),
        ("a.jpg\n1\n1 2 3 4\n5 6 7 8\n", 1, "announces 1 boxes and has 2", []),
        ("a.jpg\n1\n1 2 3 4\na.jpg\n1\n5 6 7 8\n", 4, "listed again, at first in line 1", ["a.jpg"]),
        ("a.jpg", 1, "number of boxes", []),
        ("no image", 1, "expected an image name", []),
    ],
)
def test_images_whose_rows_do_not_fit_are_skipped(text: str, line: int, words: str, kept: list[str]) -> None:
    account = Account()
    entries = parse_annotations(text, "f.txt", account)
    assert list(entries) == kept
    assert all(len(rows) == 1 for _, rows in entries.values())
    assert account.problems[0].startswith(f"f.txt:{line}: ")
    assert words in account.problems[0]


@pytest.mark.parametrize(("row", "rule"), [("1 2 3", "at least x y w h"), ("1 2 x 4", "must be numbers")])
def test_rows_without_four_numbers_are_skipped(
    faces_folder: Path, tmp_path: Path, row: str, rule: str
) -> None:
    (tmp_path / "images").symlink_to(faces_folder / "images")
    (tmp_path / "x_bbx_gt.txt").write_text(f"other/0.png\n1\n{row}\n")
    _, (problem,) = read_labels([tmp_path])
    assert problem.startswith(f"{tmp_path / 'x_bbx_gt.txt'}:3: a box")
    assert rule in problem


@pytest.mark.parametrize("packed", [False, True])
def test_files_of_windows_and_macos_and_shards_of_the_current_folder_are_read(
    tmp_path: Path, packed: bool
) -> None:
    """`tar -C photos -cf photos.tar .` begins every name with "./"."""
    folder = tmp_path / "photos"
    (folder / "images").mkdir(parents=True)
    Image.new("L", (40, 30), 128).save(folder / "images" / "a.png")
    (folder / "x_bbx_gt.txt").write_bytes(b"\xef\xbb\xbfa.png\r\n1\r\n1 2 30 20\r\n")
    (folder / "._x_bbx_gt.txt").write_bytes(b"\0\5\x16\7\0\2\0\0Mac OS X")
    if packed:
        subprocess.run(["tar", "-C", folder, "-cf", tmp_path / "photos.tar", "."], check=True)
    (image,), problems = read_labels([tmp_path / "photos.tar" if packed else folder])
    assert image.name == "a.png"
    assert image.read_bytes() == (folder / "images" / "a.png").read_bytes()
    assert not problems


def test_published_archives_are_understood(tmp_path: Path, faces_folder: Path) -> None:
    labels = tmp_path / "wider_face_split" / "wider_face_train_bbx_gt.txt"
    labels.parent.mkdir()
    (tmp_path / "WIDER_train").symlink_to(faces_folder)
    shutil.copy(faces_folder / "faces_bbx_gt.txt", labels)
    images, problems = read_labels([labels.parent])
    assert (len(images), problems) == (12, [])
