"""A photograph with what was found in it, as an image file."""

import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

from PIL import Image

from lensbox.artifact.metadata import ArtifactMetadata, Reading
from lensbox.common.annotate import annotate
from lensbox.serve.image_body import photo_from_file

# As many bytes as the largest answers of /v2: whoever is slow to take an answer keeps it in memory.
MAX_PICTURE_PIXELS = 1 << 24
_FORMATS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "image/jpeg": ("JPEG", {"quality": 90}),
    "image/png": ("PNG", {"compress_level": 1}),  # a fifth of the time of the default, files a third larger
}
PICTURE_TYPES = tuple(_FORMATS)


def picture(
    file: bytes,
    reading: Reading,
    found: Sequence[Mapping[str, Any]],
    metadata: ArtifactMetadata,
    media_type: str,
    max_pixels: int,
    deadline: float | None = None,
) -> bytes:
    """A file of one of `PICTURE_TYPES`: the photograph upright and in color, without alpha, and boxes on it.

    It has the photograph's size, or as much less as `MAX_PICTURE_PIXELS` asks for. found: detections as JSON
    has them. Raises as `photo_from_file` does.
    """
    photo = photo_from_file(file, None, reading, max_pixels, deadline)
    pixels = photo.pixels.permute(1, 2, 0).numpy()
    plain = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).convert("RGB")
    if photo.width * photo.height > MAX_PICTURE_PIXELS:
        plain = plain.reduce(math.ceil(math.sqrt(photo.width * photo.height / MAX_PICTURE_PIXELS)))
    points = [name for name, extra in metadata.extras.items() if extra.kind == "points"]
    scale = plain.width / photo.width
    drawn = annotate(plain, found, metadata.classes, points, scale)
    name, options = _FORMATS[media_type]
    written = io.BytesIO()
    drawn.save(written, name, **options)
    return written.getvalue()
