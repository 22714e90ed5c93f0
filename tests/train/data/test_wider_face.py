"""Labels in the WIDER FACE layout, in folders and tar shards."""

import shutil
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lensbox.train.data.image_store import decode_image
from lensbox.train.data.labels import DataError, read_labels
from lensbox.train.data.wider_face import parse_annotations

GOOD = """a/one.jpg
2
10 20 30 40 0 0 0 0 0 0 traffic  light
1.5 2.5 3 4 0 0 0 1 0 0
b\\none.jpg
0
0 0 0 0 0 0 0 0 0 0
b/two.png
1
5 6 7 8
"""


def test_parses_boxes_ignore_flags_classes_and_empty_images() -> None:
    entries, problems = parse_annotations(GOOD, "f.txt")
    assert problems == []
    assert [entry.name for entry in entries] == ["a/one.jpg", "b/none.jpg", "b/two.png"]
    np.testing.assert_array_equal(entries[0].boxes, [[10, 20, 40, 60], [1.5, 2.5, 4.5, 6.5]])
    assert entries[0].ignore.tolist() == [False, True]
    assert entries[0].classes == ("traffic light", "")
    assert entries[1].boxes.shape == (0, 4)
    np.testing.assert_array_equal(entries[2].boxes, [[5, 6, 12, 14]])


@pytest.mark.parametrize(
    ("text", "line", "words", "kept"),
    [
        ("a.jpg\n2\n1 2 3 4\n1 2 x 4\nb.jpg\n1\n1 1 1 1\n", 4, "must be numbers", ["a.jpg", "b.jpg"]),
        ("a.jpg\n2\n1 2 3 4\n1 2 3 4.0\n", 4, "same box and class as f.txt:3", ["a.jpg"]),
        ("a.jpg\n1\n1 2 0 4\n", 3, "above 0", ["a.jpg"]),
        ("a.jpg\n1\n9 2 -3 4\n", 3, "above 0", ["a.jpg"]),  # x2 < x1
        ("a.jpg\n1\n1 9 3 -4\n", 3, "above 0", ["a.jpg"]),  # y2 < y1
        ("a.jpg\n1\n1 2 nan 4\n", 3, "above 0", ["a.jpg"]),
        ("a.jpg\n1\n1 2 3\n", 3, "at least x y w h", ["a.jpg"]),
        ("a.jpg\nmany\n1 2 3 4\nb.jpg\n1\n1 1 1 1\n", 2, "number of boxes", ["b.jpg"]),
        ("a.jpg\n²\n1 2 3 4\nb.jpg\n1\n1 1 1 1\n", 2, "number of boxes", ["b.jpg"]),
        ("a.jpg\n3\n1 2 3 4\nb.jpg\n1\n1 1 1 1\n", 1, "announces 3 boxes and has 1", ["b.jpg"]),
        ("a.jpg\n2\n1 2 3 4", 1, "announces 2 boxes and has 1", []),
        ("a.jpg\n1\n1 2 3 4\nb.jpg\n0\na.jpg\n1\n1 2 3 4\n", 6, "listed again", ["a.jpg", "b.jpg"]),
        ("a.jpg\n1\n1 2 3 4\nb.jpg\n0\na.jpg\n1\n5 6 7 8\n", 6, "with other boxes", ["b.jpg"]),
    ],
)
def test_bad_rows_are_named_by_line(text: str, line: int, words: str, kept: list[str]) -> None:
    entries, problems = parse_annotations(text, "f.txt")
    assert [entry.name for entry in entries] == kept
    assert sum(len(entry.boxes) for entry in entries) <= 2
    assert problems[0].origin == f"f.txt:{line}"
    assert words in problems[0].message


def test_folder_and_shard_hold_the_same(faces_folder: Path, faces_shard: Path) -> None:
    (from_folder, problems), (from_shard, others) = map(read_labels, ([faces_folder], [faces_shard]))
    assert problems == others == []
    assert len(from_folder) == 12
    for one, other in zip(from_folder, from_shard, strict=True):
        assert one.name == other.name
        assert one.source in ("0--Event", "other")
        assert one.read_bytes() == other.read_bytes()
        np.testing.assert_array_equal(one.boxes, other.boxes)


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


def test_missing_and_unreadable_images_are_reported(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "bad.jpg").write_bytes(b"no image")
    (tmp_path / "x_bbx_gt.txt").write_text("gone.jpg\n1\n1 2 3 4\nbad.jpg\n1\n1 2 3 4\n")
    (bad,), (problem,) = read_labels([tmp_path])
    missing = f"{tmp_path / 'x_bbx_gt.txt'}:1: image gone.jpg is not in {tmp_path / 'images'}"
    assert str(problem) == missing
    with pytest.raises(OSError, match=r"bad\.jpg cannot be read"):
        decode_image(bad)
    with pytest.raises(DataError, match=r"gone\.jpg"):
        read_labels([tmp_path], strict=True)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("absent", "labels that exist, got"),
        ("folder", "must hold"),
        ("text.tar", "uncompressed tar"),
        ("empty.tar", "must hold"),
    ],
)
def test_paths_that_are_no_data_are_refused(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text.tar").write_text("not a tar file")
    tarfile.open(tmp_path / "empty.tar", "w").close()
    with pytest.raises(DataError, match=words):
        read_labels([tmp_path / name])
