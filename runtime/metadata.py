"""The metadata of an artifact, and `lensbox.json`, the form in which it is stored.

`docs/artifact.md` has the rules by which it is read, here and in C++.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from lensbox.runtime.json_field import Field, FieldError
from lensbox.runtime.self_test import SelfTest, Tolerance
from lensbox.runtime.strict_json import parse_strict

FORMAT_VERSION = 2
# Of format 1, whose `preprocess` takes one image, and which says nothing of canvas and reading.
SINGLE_IMAGE_FORMAT = 1
MAX_OPS = 1000
MAX_SCHEMA_LENGTH = 4096
MAX_SCHEMA_NESTING = 16
MAX_PIXELS = 1 << 20
MAX_CANVAS_SIDE = 1 << 14
MAX_JPEG_OVERSAMPLING = 1000

_SCHEMA = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*(\.\w+)?\([ -~]*\) -> [ -~]+", re.ASCII)


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


@dataclass(frozen=True)
class ArtifactMetadata:
    """What `lensbox.json` says of an artifact.

    weights_sha256: `lensbox.model.weights_sha256` of the weights it was made from.
    input, output: dtype, shape and unit of the methods' tensors, for people and clients.
    canvas: None in format 1, which does not tell.
    ops: schemas of the operators that a process must have registered before it loads the artifact.
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
    test = metadata.self_test
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
        "defaults": {"score_threshold": metadata.score_threshold, "iou_threshold": metadata.iou_threshold},
        "ops": list(metadata.ops),
        "methods": list(metadata.methods),
        "self_test": {
            "image": {"shape": list(test.image.shape), "pixels": test.image.flatten().tolist()},
            "score_threshold": test.score_threshold,
            "iou_threshold": test.iou_threshold,
            "expected": {"boxes": test.boxes.tolist(), "scores": test.scores.tolist()},
            "loss": {
                "predictions": test.loss_predictions.tolist(),
                "targets": test.loss_targets.tolist(),
                "expected": test.loss,
            },
            "tolerance": {
                device: {"boxes": limit.boxes, "scores": limit.scores, "loss": limit.loss}
                for device, limit in test.tolerances.items()
            },
        },
    }


def _read(document: Field, version: int) -> ArtifactMetadata:
    defaults, single = document["defaults"], version == SINGLE_IMAGE_FORMAT
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
        self_test=_self_test(document["self_test"]),
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


def _self_test(test: Field) -> SelfTest:
    expected, loss = test["expected"], test["loss"]
    scores = expected["scores"].items("scores", least=1)
    boxes = _boxes(expected["boxes"], len(scores))
    targets = loss["targets"].items("boxes", least=1)
    return SelfTest(
        image=_image(test["image"]),
        score_threshold=test["score_threshold"].fraction(),
        iou_threshold=test["iou_threshold"].fraction(),
        boxes=boxes,
        scores=torch.tensor([score.fraction() for score in scores], dtype=torch.float32),
        loss_predictions=_boxes(loss["predictions"], len(targets)),
        loss_targets=_boxes(loss["targets"], len(targets)),
        loss=loss["expected"].number(),
        tolerances={device: _tolerance(test["tolerance"][device]) for device in ("cpu", "cuda")},
    )


def _image(image: Field) -> Tensor:
    """uint8 [C, H, W]."""
    channels, height, width = (
        size.integer(1, MAX_PIXELS, "a positive integer") for size in image["shape"].items("sizes", 3, 3)
    )
    if channels not in (1, 3, 4):
        image["shape"].fail("[C, H, W] with C = 1, 3 or 4")
    size = channels * height * width
    if size > MAX_PIXELS:
        image["shape"].fail(f"that of an image of at most {MAX_PIXELS} values")
    pixels = image["pixels"].integers(f"values, as many as the shape has ({size})", size, 0, 255)
    return torch.tensor(pixels, dtype=torch.uint8).view(channels, height, width)


def _boxes(field: Field, count: int) -> Tensor:
    """float32 [count, 4]."""
    rows = field.items("boxes, one for each score or target", count, count)
    values = [[number.number() for number in row.items("coordinates", 4, 4)] for row in rows]
    return torch.tensor(values, dtype=torch.float32)


def _tolerance(field: Field) -> Tolerance:
    return Tolerance(**{name: field[name].positive() for name in ("boxes", "scores", "loss")})
