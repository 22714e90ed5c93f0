"""Photographs read for a canvas: scale and position of the pixels.

`tests/runtimes/test_photos.py` compares the pixels with those of C++.
"""

import PIL.Image
import PIL.ImageDraw
import pytest
from picture_files import encoded, exif, jpeg_with_exif

from lensbox.runtime import Canvas, Reading, read_image, read_photo

GRAY = Canvas(height=32, width=32, channels=1, fill=0)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_window_is_the_position_of_the_pixels(orientation: int) -> None:
    """A white rectangle on black, decoded at 1/8, in the pixels of the upright photograph."""
    picture = PIL.Image.new("L", (1003, 749))
    PIL.ImageDraw.Draw(picture).rectangle((160, 240, 479, 399), fill=255)
    file = jpeg_with_exif(encoded(picture, quality=95), exif(orientation))
    photo = read_photo(file, GRAY)
    assert (photo.width, photo.height) == ((1003, 749) if orientation <= 4 else (749, 1003))
    stored = read_photo(file, GRAY, Reading(orientation="stored"))
    assert (stored.width, stored.height, stored.window) == (1003, 749, (0, 0, 1008, 752))
    x1, y1, x2, _ = photo.window
    rows, columns = (photo.pixels[0] > 127).nonzero(as_tuple=True)
    assert (x2 - x1) / photo.pixels.shape[2] == 8
    left, right = x1 + 8 * columns.min(), x1 + 8 * (columns.max() + 1)
    top, bottom = y1 + 8 * rows.min(), y1 + 8 * (rows.max() + 1)
    whole = (read_image(file)[0] > 127).nonzero(as_tuple=True)
    expected = (whole[1].min(), whole[0].min(), whole[1].max() + 1, whole[0].max() + 1)
    assert [int(side) for side in (left, top, right, bottom)] == [int(side) for side in expected]
