from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from lensbox.common import samples as command
from lensbox.common.samples import DRAWN_BOXES, FACE_FREE, face_free_photos, gray_portraits, save_photos


def test_drawn_boxes_lie_in_the_portraits(tmp_path: Path) -> None:
    for path in save_photos(tmp_path):
        with PIL.Image.open(path) as image:
            x1, y1, x2, y2 = DRAWN_BOXES[path.name]
            assert 0 <= x1 < x2 <= image.width
            assert 0 <= y1 < y2 <= image.height


def test_gray_portraits_are_the_saved_ones(tmp_path: Path) -> None:
    portraits = gray_portraits()
    for path in save_photos(tmp_path):
        with PIL.Image.open(path) as image:
            assert np.array_equal(portraits[path.name], np.array(image.convert("L")))


def test_face_free_photographs_are_photographs() -> None:
    photos = face_free_photos()
    assert tuple(photos) == tuple(FACE_FREE)
    for name, pixels in photos.items():
        assert pixels.dtype == np.uint8, name
        assert pixels.ndim == 2 or pixels.shape[2] == 3, name
        assert min(pixels.shape[:2]) >= 256, name
        assert pixels.std() > 10, name


def test_packages_that_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    monkeypatch.setattr("sys.argv", ["samples", str(tmp_path / "photos")])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 3
    assert "come with matplotlib and skimage: pip install 'lensbox[demo]'" in capsys.readouterr().err
    assert not (tmp_path / "photos").exists()


def test_a_file_in_the_place_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr("sys.argv", ["samples", str(tmp_path / "file")])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 2
    assert "folder must be a folder, got the file" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr("sys.argv", ["samples", str(tmp_path / "file" / "photos")])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 3
    said = capsys.readouterr().err
    assert f"python -m lensbox.common.samples: {tmp_path / 'file' / 'photos'} cannot be written: " in said
