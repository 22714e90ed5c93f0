from pathlib import Path

import numpy as np
import PIL.Image

from lensbox.samples.photos import DRAWN_BOXES, FACE_FREE, face_free_photos, gray_portraits, save_photos


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
    assert tuple(photos) == FACE_FREE
    for name, pixels in photos.items():
        assert pixels.dtype == np.uint8, name
        assert pixels.ndim == 2 or pixels.shape[2] == 3, name
        assert min(pixels.shape[:2]) >= 256, name
        assert pixels.std() > 10, name
