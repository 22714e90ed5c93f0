"""Read image files."""

from pathlib import Path

from torch import Tensor

from lensbox.common.canvas import Canvas
from lensbox.common.errors import InputError, system_reason
from lensbox.common.fields import Orientation
from lensbox.common.pictures import ImageFile, content_of
from lensbox.runtime.file.metadata import Reading
from lensbox.runtime.images.decoder import decode_photo
from lensbox.runtime.images.photo import Photo

DEFAULT_READING = Reading()


def read_image(source: ImageFile, orientation: Orientation = "exif") -> Tensor:
    """Decode an image file at full size to uint8 [C, H, W]: C = 1 (gray), 3 (RGB) or 4 (RGBA).

    source: a path, the bytes of a file, or a file open in binary mode. orientation: "exif" turns the picture
    upright by its EXIF data, "stored" leaves the pixels as stored. Other color modes are converted: palettes
    and CMYK to RGB, one bit and 16 bit to gray levels of 8 bit. The memory is interleaved. Raise ValueError
    for another orientation, TypeError for another source, FileNotFoundError, and InputError if the file is
    damaged or of a kind that is not read, or if it has more than 179 million pixels (Pillow's limit), a side
    of more than 16,777,216 pixels or more than 100,000 pieces.
    """
    return read_photo(source, reading=DEFAULT_READING.asked(orientation)).pixels


def read_photo(source: ImageFile, canvas: Canvas | None = None, reading: Reading = DEFAULT_READING) -> Photo:
    """Decode an image file for a canvas by the rule "Reading images" in `docs/artifact.md`.

    JPEG files are decoded at a scale that suffices for the canvas, and without colors for a gray canvas.
    Without a canvas, decode at full size. Raise what `read_image` raises.
    """
    file, name = content_of(source, "source"), "the image data"
    if file is None:
        name, path = str(source), Path(str(source))
        try:
            file = path.read_bytes() if path.is_file() else None
        except OSError as error:
            raise InputError(f"{path} cannot be read: {system_reason(error)}") from error
        if file is None:
            raise FileNotFoundError(f"source must be an image file, got {path}")
    try:
        return decode_photo(file, canvas, reading)
    except (InputError, OSError) as error:
        raise InputError(f"{name} must be an image that can be decoded: {error}") from error
