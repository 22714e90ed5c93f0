"""The metadata of an artifact, and `lensbox.json`, the form in which it is stored.

`docs/artifact.md` has the rules by which it is read, here and in C++.
"""

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from lensbox.runtime.carried_ops import Library
from lensbox.runtime.detection import Extra
from lensbox.runtime.json_field import IDENTIFIER, Field, FieldError
from lensbox.runtime.self_test import SelfTest
from lensbox.runtime.self_test_fields import read_self_test, self_test_to_dict
from lensbox.runtime.strict_json import parse_strict

FORMAT_VERSION = 2
# Of format 1, whose `preprocess` takes one image, and which says nothing of canvas and reading.
SINGLE_IMAGE_FORMAT = 1
MAX_OPS = 1000
MAX_SCHEMA_LENGTH = 4096
MAX_SCHEMA_NESTING = 16
MAX_CANVAS_SIDE = 1 << 14
MAX_JPEG_OVERSAMPLING = 1000
MAX_CLASSES = 10_000
MAX_CLASS_LENGTH = 200
MAX_EXTRAS = 100
MAX_EXTRA_DIMENSIONS = 8
MAX_EXTRA_SIZE = 1 << 16
MAX_LIBRARIES = 16

_SCHEMA = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*(\.\w+)?\([ -~]*\) -> [ -~]+", re.ASCII)


Orientation = Literal["exif", "stored"]
_LIBRARY_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


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


@dataclasses.dataclass(frozen=True)
class ArtifactMetadata:
    """What `lensbox.json` says of an artifact.

    weights_sha256: `lensbox.model.weights_sha256` of the weights it was made from.
    input, output: dtype, shape and unit of the methods' tensors, for people and clients.
    canvas: None in format 1, which does not tell.
    ops: schemas of the operators that a process must have registered before it loads the artifact.
    classes: names by label; empty where there is one kind and no labels.
    extras: further outputs of `detect_named`, by name.
    precision: None for float32.
    libraries: op libraries that the artifact carries.
    """

    format_version: int
    name: str
    lensbox_version: str
    torch_version: str
    weights_sha256: str
    input: dict[str, Any]
    output: dict[str, Any]
    canvas: Canvas | None
    reading: Reading
    score_threshold: float
    iou_threshold: float
    ops: tuple[str, ...]
    methods: tuple[str, ...]
    self_test: SelfTest
    classes: tuple[str, ...] = ()
    extras: Mapping[str, Extra] = dataclasses.field(default_factory=dict)
    precision: Precision | None = None
    libraries: tuple[Library, ...] = ()

    def to_json(self) -> str:
        """The content of `lensbox.json`."""
        return json.dumps(_to_dict(self))

    @classmethod
    def from_json(cls, text: str) -> "ArtifactMetadata":
        """Reads what `to_json` wrote. Unknown entries are ignored.

        Raises ValueError, with the path of the value, if it is malformed, or of a newer format version.
        """
        try:
            document = Field(parse_strict(text))
        except ValueError as error:
            raise ValueError(f"it is no strict JSON: {error}") from error
        try:
            version = document["format_version"].integer(1, 2**63 - 1, "a positive integer")
        except FieldError as error:
            raise ValueError(f"there is no readable format_version: {error}") from error
        if version > FORMAT_VERSION:
            writer = document.members().get("lensbox_version", "an unknown version")
            raise ValueError(
                f"its format version is {version}, this Lensbox reads up to {FORMAT_VERSION}: update Lensbox "
                f"(it was written by {writer})"
            )
        try:
            return _read(document, version)
        except FieldError as error:
            raise ValueError(f"it is malformed: {error}") from error


def _to_dict(metadata: ArtifactMetadata) -> dict[str, Any]:
    extras = {
        name: {"shape": list(extra.shape), "kind": extra.kind} for name, extra in metadata.extras.items()
    }
    libraries = [library._asdict() for library in metadata.libraries]
    return {
        "format_version": metadata.format_version,
        "name": metadata.name,
        "lensbox_version": metadata.lensbox_version,
        "torch_version": metadata.torch_version,
        "weights_sha256": metadata.weights_sha256,
        "input": metadata.input,
        "output": metadata.output,
        **({"canvas": metadata.canvas._asdict()} if metadata.canvas else {}),
        **({"reading": metadata.reading._asdict()} if metadata.canvas else {}),
        **({"classes": list(metadata.classes)} if metadata.classes else {}),
        **({"extras": extras} if extras else {}),
        **({"precision": metadata.precision._asdict()} if metadata.precision else {}),
        **({"libraries": libraries} if libraries else {}),
        "defaults": {"score_threshold": metadata.score_threshold, "iou_threshold": metadata.iou_threshold},
        "ops": list(metadata.ops),
        "methods": list(metadata.methods),
        "self_test": self_test_to_dict(metadata.self_test),
    }


def _read(document: Field, version: int) -> ArtifactMetadata:
    defaults, single = document["defaults"], version == SINGLE_IMAGE_FORMAT
    classes = () if single else _classes(document)
    extras = {} if single else _extras(document)
    return ArtifactMetadata(
        format_version=version,
        name=document["name"].text(),
        lensbox_version=document["lensbox_version"].text(),
        torch_version=document["torch_version"].text(),
        weights_sha256=document["weights_sha256"].text(),
        input=document["input"].members(),
        output=document["output"].members(),
        canvas=None if single else _canvas(document["canvas"]),
        reading=Reading() if single else _reading(document["reading"]),
        score_threshold=defaults["score_threshold"].fraction(),
        iou_threshold=defaults["iou_threshold"].fraction(),
        ops=tuple(_schema(field) for field in document["ops"].items("operator schemas", most=MAX_OPS)),
        methods=tuple(field.identifier() for field in document["methods"].items("methods")),
        self_test=read_self_test(document["self_test"], len(classes), extras),
        classes=classes,
        extras=extras,
        precision=None if single else _precision(document),
        libraries=() if single else _libraries(document),
    )


def _canvas(canvas: Field) -> Canvas:
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


def _reading(reading: Field) -> Reading:
    orientation = reading["orientation"].text()
    if orientation not in ("exif", "stored"):
        reading["orientation"].fail('"exif" or "stored"')
    most = MAX_JPEG_OVERSAMPLING
    oversampling = reading["jpeg_oversampling"].integer(0, most, f"an integer from 0 to {most}")
    return Reading("exif" if orientation == "exif" else "stored", oversampling)


def _classes(document: Field) -> tuple[str, ...]:
    if "classes" not in document.members():
        return ()
    names = document["classes"].items("names", most=MAX_CLASSES)
    for name in names:
        if not 1 <= len(name.text()) <= MAX_CLASS_LENGTH:
            name.fail(f"a name of 1 to {MAX_CLASS_LENGTH} characters")
    if len({name.value for name in names}) < len(names):
        document["classes"].fail("a list of different names")
    return tuple(name.text() for name in names)


def _extras(document: Field) -> dict[str, Extra]:
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


def _precision(document: Field) -> Precision | None:
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


def _libraries(document: Field) -> tuple[Library, ...]:
    if "libraries" not in document.members():
        return ()
    libraries = tuple(
        _library(field) for field in document["libraries"].items("libraries", most=MAX_LIBRARIES)
    )
    if len({library.name for library in libraries}) < len(libraries):
        document["libraries"].fail("a list of libraries with different names")
    return libraries


def _library(library: Field) -> Library:
    if not _LIBRARY_NAME.fullmatch(library["name"].text()):
        library["name"].fail("a file name of 1 to 100 letters, digits and _.+- that begins with none of .+-")
    if not _SHA256.fullmatch(library["sha256"].text()):
        library["sha256"].fail("64 digits of a SHA-256, in small letters")
    return Library(*(library[name].text() for name in Library._fields))


def _schema(field: Field) -> str:
    text = field.text()
    if len(text) > MAX_SCHEMA_LENGTH or not _SCHEMA.fullmatch(text) or _nesting(text) > MAX_SCHEMA_NESTING:
        # Before torch's parser, which is recursive.
        field.fail(
            "an operator's schema, namespace::name(...) -> ..., of at most "
            f"{MAX_SCHEMA_LENGTH} characters and {MAX_SCHEMA_NESTING} nested brackets"
        )
    return text


def _nesting(text: str) -> int:
    deepest = depth = 0
    for character in text:
        depth += (character in "([") - (character in ")]")
        deepest = max(deepest, depth)
    return deepest
