"""Draw detections on a photograph, and negotiate the media type of the answer."""

import io
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from PIL import Image

from lensbox.artifact.metadata import ArtifactMetadata, Reading
from lensbox.common.annotate import annotate
from lensbox.serve.requests.errors import ApiError, shown
from lensbox.serve.requests.image_file import photo_from_file

# An answer stays in memory until the client has read it.
MAX_PICTURE_PIXELS = 1 << 24
_FORMATS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "image/jpeg": ("JPEG", {"quality": 90}),
    "image/png": ("PNG", {"compress_level": 1}),  # a fifth of the time of the default, files a third larger
}
PICTURE_TYPES = tuple(_FORMATS)

_IS_QUALITY = re.compile(r"q\s*=")
_QUALITY = re.compile(r"0(\.\d{0,3})?|1(\.0{0,3})?")


def picture(
    file: bytes,
    reading: Reading,
    found: Sequence[Mapping[str, Any]],
    metadata: ArtifactMetadata,
    media_type: str,
    max_pixels: int,
    deadline: float | None = None,
) -> bytes:
    """Return the photograph with boxes drawn on it, upright and in RGB, as a file of type `media_type`.

    The picture is reduced by an integer factor if the photograph has more than `MAX_PICTURE_PIXELS`. found:
    detections in the form of the JSON answer. Raises the errors of `photo_from_file`.
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


def negotiated(accept: Sequence[str], offered: Sequence[str]) -> str:
    """Return the `offered` media type with the highest quality value (RFC 9110, 12.5.1); the first on a tie.

    accept: the values of the client's Accept headers; without a valid range, all types are acceptable. For
    each type the most specific range counts. Raises ApiError (406) if no type is acceptable.
    """
    if list(accept) in ([], ["*/*"], [offered[0]]):  # as most clients send
        return offered[0]
    items = ",".join(accept).lower().split(",")
    ranges = dict(found for item in items if (found := _range(item)) is not None)
    if not ranges:
        return offered[0]

    def quality(media_type: str) -> float:
        kind = media_type.partition("/")[0]
        names = (media_type, f"{kind}/*", "*/*")
        return next((ranges[name] for name in names if name in ranges), 0.0)

    best = max(offered, key=quality)
    if quality(best) == 0:
        message = f"Accept must allow {' or '.join(offered)}, got {shown(', '.join(accept))}"
        raise ApiError(406, "not_acceptable", message)
    return best


def _range(item: str) -> tuple[str, float] | None:
    """Return a media range, such as image/*, and its quality value; None if it is malformed."""
    name, *options = (part.strip() for part in item.split(";"))
    kind, slash, subtype = name.partition("/")
    if not slash or (kind == "*" and subtype != "*"):
        return None
    quality = next((option.partition("=")[2].strip() for option in options if _IS_QUALITY.match(option)), "1")
    return (name, float(quality)) if _QUALITY.fullmatch(quality) else None
