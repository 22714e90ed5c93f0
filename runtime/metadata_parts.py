"""What `lensbox.json` says of a detector: canvas, reading, classes, further outputs, precision.

The limits are those of `lensbox.model.specification`, so that whatever is exported can be read.
"""

import math
from typing import Literal, NamedTuple

from lensbox.runtime.detection import Extra
from lensbox.runtime.json_field import IDENTIFIER, Field

MAX_CANVAS_SIDE = 1 << 14
MAX_JPEG_OVERSAMPLING = 1000
MAX_CLASSES = 10_000
MAX_CLASS_LENGTH = 200
MAX_EXTRAS = 100
MAX_PARITY = 1000
MAX_EXTRA_DIMENSIONS = 8
MAX_EXTRA_SIZE = 1 << 16

Orientation = Literal["exif", "stored"]


class Canvas(NamedTuple):
    """What images are fitted to: sides in pixels; 1 channel (gray) or 3 (RGB); gray level of the padding."""

    height: int
    width: int
    channels: int = 1
    fill: int = 0


class Reading(NamedTuple):
    """How image files are to be read for a detector.

    orientation: "exif" to turn photographs upright, "stored" to leave them as their pixels lie.
    jpeg_oversampling: a JPEG file may be decoded at a reduced scale as long as each side keeps this many
    times the pixels that the canvas needs; 0: always in full.
    """

    orientation: Orientation = "exif"
    jpeg_oversampling: int = 2


class Precision(NamedTuple):
    """In what other precision than float32 a detector computes, and how far that moved its detections.

    dtype: "tf32", which a runtime may allow, "float16" or "bfloat16", which the code holds. device: where the
    changes were measured, over so many pictures and detections; those of boxes in canvas pixels.
    """

    dtype: Literal["tf32", "float16", "bfloat16"]
    device: str
    pictures: int
    detections: int
    median_box_change: float
    max_box_change: float
    max_score_change: float


class Parity(NamedTuple):
    """How near a file's answers came to those of the detector in PyTorch and float32 before it was written,
    with one runtime, device and batch size.

    detections: of the detector. boxes, scores: the largest changes of those that both find, in canvas pixels
    and of 0 to 1. exchanged: detections that only one of them finds, or that moved by more than the export
    tolerates, as where two boxes of one score suppress each other. loss: the relative difference, None for a
    file without one. milliseconds: the median time of a batch.
    """

    runtime: Literal["Python", "C++"]
    device: str
    batch: int
    detections: int
    boxes: float
    scores: float
    exchanged: int
    loss: float | None
    milliseconds: float


def read_canvas(canvas: Field) -> Canvas:
    """Raises FieldError, as all of these do."""
    side = f"an integer from 1 to {MAX_CANVAS_SIDE}"
    channels = canvas["channels"].integer(1, 3, "1 or 3")
    if channels == 2:
        canvas["channels"].fail("1 or 3")
    return Canvas(
        height=canvas["height"].integer(1, MAX_CANVAS_SIDE, side),
        width=canvas["width"].integer(1, MAX_CANVAS_SIDE, side),
        channels=channels,
        fill=canvas["fill"].integer(0, 255, "an integer from 0 to 255"),
    )


def read_reading(reading: Field) -> Reading:
    """The value of `reading`."""
    orientation = reading["orientation"].text()
    if orientation not in ("exif", "stored"):
        reading["orientation"].fail('"exif" or "stored"')
    most = MAX_JPEG_OVERSAMPLING
    oversampling = reading["jpeg_oversampling"].integer(0, most, f"an integer from 0 to {most}")
    return Reading("exif" if orientation == "exif" else "stored", oversampling)


def read_classes(document: Field) -> tuple[str, ...]:
    """The entry `classes`, which need not be there."""
    if "classes" not in document.members():
        return ()
    names = document["classes"].items("names", most=MAX_CLASSES)
    for name in names:
        if not 1 <= len(name.text()) <= MAX_CLASS_LENGTH:
            name.fail(f"a name of 1 to {MAX_CLASS_LENGTH} characters")
    if len({name.value for name in names}) < len(names):
        document["classes"].fail("a list of different names")
    return tuple(name.text() for name in names)


def read_extras(document: Field) -> dict[str, Extra]:
    """The entry `extras`, which need not be there."""
    if "extras" not in document.members():
        return {}
    extras = document["extras"]
    if len(extras.members()) > MAX_EXTRAS:
        extras.fail(f"an object of at most {MAX_EXTRAS} outputs")
    return {name: _extra(name, extras[name]) for name in extras.members()}


def _extra(name: str, extra: Field) -> Extra:
    if not IDENTIFIER.fullmatch(name) or name in ("boxes", "scores", "counts", "labels"):
        extra.fail("of a name that is an identifier other than boxes, scores, counts and labels")
    sides = extra["shape"].items("sizes", most=MAX_EXTRA_DIMENSIONS)
    shape = tuple(side.integer(1, MAX_EXTRA_SIZE, "a positive integer") for side in sides)
    if math.prod(shape) > MAX_EXTRA_SIZE:
        extra["shape"].fail(f"that of at most {MAX_EXTRA_SIZE} numbers")
    kind = extra["kind"].text()
    if kind not in ("points", "values"):
        extra["kind"].fail('"points" or "values"')
    if kind == "points" and shape[-1:] != (2,):
        extra["shape"].fail("one that ends with 2, as points do")
    return Extra(shape, "points" if kind == "points" else "values")


def read_precision(document: Field) -> Precision | None:
    """The entry `precision`, which need not be there."""
    if "precision" not in document.members():
        return None
    precision = document["precision"]
    dtype = precision["dtype"].text()
    if dtype not in ("tf32", "float16", "bfloat16"):
        precision["dtype"].fail('"tf32", "float16" or "bfloat16"')
    count = "an integer from 0 to 2147483647"
    return Precision(
        dtype=dtype,  # type: ignore[arg-type]  # (just checked)
        device=precision["device"].identifier(),
        pictures=precision["pictures"].integer(0, 2**31 - 1, count),
        detections=precision["detections"].integer(0, 2**31 - 1, count),
        median_box_change=precision["median_box_change"].positive(),
        max_box_change=precision["max_box_change"].positive(),
        max_score_change=precision["max_score_change"].positive(),
    )


def read_parity(document: Field) -> tuple[Parity, ...]:
    """The entry `parity`, which need not be there."""
    if "parity" not in document.members():
        return ()
    return tuple(_parity(row) for row in document["parity"].items("rows", most=MAX_PARITY))


def _parity(row: Field) -> Parity:
    runtime = row["runtime"].text()
    if runtime not in ("Python", "C++"):
        row["runtime"].fail('"Python" or "C++"')
    count = "an integer from 0 to 2147483647"
    return Parity(
        runtime=runtime,  # type: ignore[arg-type]  # (just checked)
        device=row["device"].identifier(),
        batch=row["batch"].integer(1, 2**31 - 1, "a positive integer"),
        detections=row["detections"].integer(0, 2**31 - 1, count),
        boxes=row["boxes"].positive(),
        scores=row["scores"].positive(),
        exchanged=row["exchanged"].integer(0, 2**31 - 1, count),
        loss=None if row["loss"].value is None else row["loss"].positive(),
        milliseconds=row["milliseconds"].positive(),
    )
