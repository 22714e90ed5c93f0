"""Reading image files."""

from pathlib import Path

from torch import Tensor

from lensbox.artifact.metadata import Canvas, Orientation, Reading
from lensbox.common.errors import InputError, system_reason
from lensbox.runtime.image_decoder import decode_photo
from lensbox.runtime.image_limits import ImageLimits
from lensbox.runtime.photo import Photo

DEFAULT_READING = Reading()

# An honest file of 16 MiB is read in a few thousand pieces. A hundred thousand take a fifth of a second.
MAX_PIECES = 100_000


def read_image(source: str | Path | bytes, orientation: Orientation = "exif") -> Tensor:
    """Decodes an image file at full size to uint8 [C, H, W]: C = 1 (gray), 3 (RGB) or 4 (RGBA).

    source: a path, or the bytes of a file. orientation: "exif" turns the picture upright by its EXIF data,
    "stored" leaves it as it lies. Other color modes are converted: palettes and CMYK to RGB, one bit and 16
    bit to gray levels of 8 bit. The channels of a pixel lie side by side in memory.
    Raises ValueError for another orientation, FileNotFoundError if there is no such file and InputError,
    naming the file, if it is not an image that Pillow can decode, has more than 179 million pixels, which
    Pillow refuses, is a JPEG file that `check_jpeg` refuses, or consists of more than MAX_PIECES pieces.
    """
    return read_photo(source, reading=DEFAULT_READING.with_orientation(orientation)).pixels


def _content(path: Path) -> bytes:
    try:
        if path.is_file():
            return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {system_reason(error)}") from error
    raise FileNotFoundError(f"source must be an image file, got {path}")


def read_photo(
    source: str | Path | bytes, canvas: Canvas | None = None, reading: Reading = DEFAULT_READING
) -> Photo:
    """Decodes an image file for a canvas by the rule that all runtimes share.

    That is "Reading images" in `docs/artifact.md`: JPEG files at a scale that suffices for the canvas, and
    for a gray one without their colors. Without a canvas, as `read_image`, which says what it raises.
    """
    name = "the image data" if isinstance(source, bytes) else str(source)
    file = source if isinstance(source, bytes) else _content(Path(source))
    try:
        return decode_photo(file, canvas, reading, ImageLimits(max_pieces=MAX_PIECES))
    except (InputError, OSError) as error:
        raise InputError(f"{name} must be an image that Pillow can decode: {error}") from error
