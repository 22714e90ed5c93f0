"""The metadata of an artifact, and `lensbox.json`, the form in which a file stores it.

The C++ runtime reads the same file by the rules in `docs/artifact.md`.
"""

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError, ValidationInfo, field_validator
from pydantic.dataclasses import dataclass

from lensbox.artifact.self_test import NonNegative, SelfTest
from lensbox.common.fields import (
    EXTRAS,
    STRICT,
    Channels,
    Classes,
    Fraction,
    GrayLevel,
    Identifier,
    Orientation,
    Oversampling,
    Shape,
    Side,
    distinct,
    first_reason,
)

METADATA_FILE = "lensbox.json"
FORMAT_VERSION: Final = 2
MAX_METADATA_SIZE = 16 << 20  # bytes

_OPTIONAL = ("classes", "extras", "precision", "libraries", "parity", "compiled", "batch")

_Count = Annotated[int, Field(ge=0, lt=2**31)]
_Feature = Annotated[str, Field(pattern=r"^[a-z0-9_.]{1,40}$")]
_Schema = Annotated[
    str,
    Field(
        max_length=4096,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*::[A-Za-z_][A-Za-z0-9_]*(\.\w+)?\([ -~]*\) -> [ -~]+$",
    ),
]


@dataclass(frozen=True, config=STRICT)
class Canvas:
    """The canvas that images are fitted to.

    height, width: in pixels. channels: 1 (gray) or 3 (RGB). fill: gray level of the padding.
    """

    height: Side
    width: Side
    channels: Channels = 1
    fill: GrayLevel = 0

    @property
    def as_tuple(self) -> tuple[int, int, int, int]:
        """Height, width, channels and fill: the arguments of `letterbox` and `fit_to_canvases`."""
        return self.height, self.width, self.channels, self.fill


@dataclass(frozen=True, config=STRICT)
class Reading:
    """The rule by which image files are read for a detector.

    orientation: "exif" to turn photographs upright, "stored" to leave their pixels as stored.
    jpeg_oversampling: a JPEG file may be decoded at a reduced scale as long as each side keeps this many
    times the pixels that the canvas needs; 0: always in full.
    """

    orientation: Orientation = "exif"
    jpeg_oversampling: Oversampling = 2

    def asked(self, orientation: Orientation | None, full_size: bool = False) -> "Reading":
        """Return a copy with this orientation, unless it is None, and without reduced scales if asked.

        Raises ValueError for an orientation that is neither "exif" nor "stored".
        """
        if orientation not in (None, "exif", "stored"):
            raise ValueError(f"orientation must be 'exif' or 'stored', got {orientation!r}")
        return Reading(orientation or self.orientation, 0 if full_size else self.jpeg_oversampling)


@dataclass(frozen=True, config=STRICT)
class Thresholds:
    """The default thresholds of `detect`."""

    score_threshold: Fraction
    iou_threshold: Fraction


@dataclass(frozen=True, config=STRICT)
class Extra:
    """A further output for each detection, beside box, score and label.

    shape: without batch and slots. kind: "points", xy in canvas pixels, which `restore_points` takes to those
    of the photograph; or "values".
    """

    shape: Shape
    kind: Literal["points", "values"]

    @field_validator("kind")
    @classmethod
    def _check_points(cls, kind: str, info: ValidationInfo) -> str:
        if kind == "points" and info.data.get("shape", (2,))[-1:] != (2,):
            raise ValueError("must be values, or the shape must end with 2")
        return kind


@dataclass(frozen=True, config=STRICT)
class Precision:
    """A precision other than float32, and how far it moved the detections at export.

    dtype: "tf32", which a runtime may allow; "float16" or "bfloat16", which the code holds. device: where the
    changes were measured, on so many pictures and detections. Changes of boxes are in canvas pixels.
    """

    dtype: Literal["tf32", "float16", "bfloat16"]
    device: Identifier
    pictures: _Count
    detections: _Count
    median_box_change: NonNegative
    max_box_change: NonNegative
    max_score_change: NonNegative


@dataclass(frozen=True, config=STRICT)
class Parity:
    """The distance of a file's detections from PyTorch's, at export, on one runtime and batch size.

    boxes, scores: the largest changes of detections that both find, in canvas pixels and of 0 to 1.
    exchanged: detections that only one of them finds, or that moved by more than the export tolerates. loss:
    the relative difference, None for a file without one. milliseconds: the median time of a batch.
    """

    runtime: Literal["Python", "C++"]
    device: Identifier
    batch: Annotated[int, Field(ge=1, lt=2**31)]
    detections: _Count
    boxes: NonNegative
    scores: NonNegative
    exchanged: _Count
    loss: NonNegative | None
    milliseconds: NonNegative


@dataclass(frozen=True, config=STRICT)
class Library:
    """A shared library in the artifact's entry `extra/ops/NAME`, and what it was built for."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}$")]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    torch_version: str
    platform: str


@dataclass(frozen=True, config=STRICT)
class Compiled:
    """The machine that a package of machine code was compiled for.

    platform: such as "linux-x86_64". cpu_features: instruction sets of the processor, in Linux's names.
    gpu_architecture: such as "sm_90"; "" for a CPU.
    """

    device: Literal["cpu", "cuda"]
    torch_version: str
    platform: str
    cpu_features: Annotated[tuple[_Feature, ...], Field(max_length=1000)]
    gpu_architecture: Annotated[str, Field(pattern=r"^([a-z0-9_.]{1,40})?$")]

    @field_validator("gpu_architecture")
    @classmethod
    def _check_architecture(cls, architecture: str, info: ValidationInfo) -> str:
        if (architecture == "") != (info.data.get("device") == "cpu"):
            raise ValueError("must be empty for a CPU, and for a GPU alone")
        return architecture


@dataclass(frozen=True, config=STRICT)
class ArtifactMetadata:
    """The content of `lensbox.json`.

    weights_sha256: `lensbox.model.weights_sha256` of the weights that the artifact was made from.
    input, output: dtype, shape and unit of the methods' tensors, for people and clients.
    ops: schemas of the operators that a process must have registered before it loads the artifact.
    classes: names by label; empty for a detector without labels.
    extras: further outputs of `detect_named`, by name.
    precision: None for float32.
    libraries: op libraries that the artifact carries.
    parity: how near its answers were to PyTorch's at export; empty if that was not measured.
    compiled: the machine of a package of machine code; None for other files.
    batch: the one size of batches that `detect` takes, so that runtimes cut and fill them; None for any.
    """

    format_version: Literal[2]
    name: str
    lensbox_version: str
    torch_version: str
    weights_sha256: str
    input: dict[str, Any]
    output: dict[str, Any]
    canvas: Canvas
    reading: Reading
    defaults: Thresholds
    ops: Annotated[tuple[_Schema, ...], Field(max_length=1000)]
    methods: tuple[Identifier, ...]
    classes: Classes = ()
    extras: Annotated[Mapping[Identifier, Extra], EXTRAS] = field(default_factory=dict)
    precision: Precision | None = None
    libraries: Annotated[tuple[Library, ...], Field(max_length=16), AfterValidator(distinct)] = ()
    parity: Annotated[tuple[Parity, ...], Field(max_length=1000)] = ()
    compiled: Compiled | None = None
    batch: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    self_test: SelfTest = field(kw_only=True)  # last: it is read by `classes` and `extras`

    @property
    def score_threshold(self) -> float:
        """The default threshold of scores."""
        return self.defaults.score_threshold

    @property
    def iou_threshold(self) -> float:
        """The default threshold of IoU."""
        return self.defaults.iou_threshold

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs of `detect_named`, in the order in which detect-only files give them."""
        return ("boxes", "scores", "counts", *(["labels"] if self.classes else []), *self.extras)

    def to_json(self) -> str:
        """Return the content of `lensbox.json`."""
        document = _adapter.dump_python(self, mode="json")
        return json.dumps({key: value for key, value in document.items() if value or key not in _OPTIONAL})

    @classmethod
    def from_json(cls, text: str | bytes) -> "ArtifactMetadata":
        """Read what `to_json` wrote. Unknown entries are ignored.

        Raises ValueError, with the path of the value, if the text is too long, no strict JSON, malformed or
        of another format version.
        """
        if len(text) > MAX_METADATA_SIZE:
            raise ValueError(f"it has {len(text)} bytes, at most {MAX_METADATA_SIZE} are read")
        try:
            # For what pydantic's parser forgives: keys that occur twice, NaN and Infinity.
            document = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_no_constant)
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error
        except ValueError as error:
            raise ValueError(f"it is no strict JSON: {error}") from error
        version = document.get("format_version") if isinstance(document, dict) else None
        if type(version) is not int:
            raise ValueError("it has no format_version")
        if version != FORMAT_VERSION:
            writer = document.get("lensbox_version", "an unknown version")
            raise ValueError(
                f"its format version is {version}, this Lensbox reads {FORMAT_VERSION} alone "
                f"(it was written by Lensbox {writer})"
            )
        try:
            return _adapter.validate_json(text)
        except ValidationError as error:
            raise ValueError(f"it is malformed: {first_reason(error)}") from error


_adapter = TypeAdapter(ArtifactMetadata)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} occurs twice")
    return values


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")
