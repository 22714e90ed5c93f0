"""Images as files, arrays and Pillow's pictures."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest

from lensbox.client import Client
from lensbox.client.images import image_bytes


def test_every_kind_of_image_gives_the_same_result(url: str, photos: Path) -> None:
    path = photos / "a.PNG"
    with PIL.Image.open(path) as picture:
        picture.load()
    with Client(url) as client:
        expected = client.detect(path)
        assert (expected.width, expected.height) == picture.size
        for image in (str(path), path.read_bytes(), picture, np.asarray(picture)):
            assert client.detect(image) == expected
        gray, flipped = picture.convert("L"), np.asarray(picture)[:, ::-1]
        assert client.detect(np.asarray(gray)) == client.detect(gray)
        assert client.detect(flipped) != expected
        assert client.detect(picture.convert("CMYK")).width == picture.width


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((4, 4), np.float32), "image must be uint8, got float32"),
        (np.zeros((4, 4, 2), np.uint8), r"got \[4, 4, 2\]"),
        (np.zeros((0, 4), np.uint8), r"got \[0, 4\]"),
        (7, "got int"),
    ],
)
def test_rejects_other_images(image: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        image_bytes(image)


@pytest.mark.parametrize("file_format", ["PNG", "JPEG"])
def test_rejects_broken_pictures(file_format: str) -> None:
    whole = io.BytesIO()
    PIL.Image.effect_noise((400, 400), 50).save(whole, file_format)
    content = whole.getvalue()
    # PNG: damage the name of a later chunk, for which Pillow raises SyntaxError.
    cut = content.rindex(b"IDAT") if file_format == "PNG" else len(content) // 2
    broken = content[:cut] + (b"ID\0T" + content[cut + 4 :] if file_format == "PNG" else b"")
    with pytest.raises(ValueError, match=r"^image must be a whole picture: "):
        image_bytes(PIL.Image.open(io.BytesIO(broken)))
