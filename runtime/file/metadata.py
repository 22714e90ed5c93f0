"""The metadata of an artifact and their JSON form, `lensbox.json`.

The C++ runtime reads the same JSON by the rules in `docs/artifact.md`.
"""

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, Final, Literal

from pydantic import Field, TypeAdapter, ValidationError, ValidationInfo, field_validator
from pydantic.dataclasses import dataclass

from lensbox.common.canvas import Canvas
from lensbox.common.fields import (
    EXTRAS,
    STRICT,
    Classes,
    Fraction,
    Identifier,
    Orientation,
    Oversampling,
    Shape,
    first_reason,
)
from lensbox.runtime.file.self_test import NonNegativeNumber, SelfTest, fitted

METADATA_FILE = "lensbox.json"
FORMAT_VERSION: Final = 3
MAX_METADATA_SIZE = 16 << 20  # bytes
METHODS = ("preprocess", "detect", "restore", "restore_points", "loss")  # docs/artifact.md, "The methods"

_REQUIRED = {  # the defaults of these fields are for programs
    "canvas": ("height", "width", "channels", "fill"),
    "reading": ("orientation", "jpeg_oversampling"),
}

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
class Reading:
    """The rule by which image files are read for a detector.

    orientation: "exif" to turn photographs upright, "stored" to leave their pixels as stored.
    jpeg_oversampling: decode a JPEG file at a reduced scale if each side keeps this many times the pixels
    of the canvas; 0: always decode in full.
    """

    orientation: Orientation = "exif"
    jpeg_oversampling: Oversampling = 2

    def asked(self, orientation: Orientation | None, full_size: bool = False) -> "Reading":
        """Return it with this orientation (unless None); full_size: decode without reduced scales.

        Raise ValueError for an orientation that is neither "exif" nor "stored".
        """
        if orientation not in (None, "exif", "stored"):
            raise ValueError(f"orientation must be 'exif' or 'stored', got {orientation!r}")
        if orientation is None and not full_size:
            return self
        return Reading(orientation or self.orientation, 0 if full_size else self.jpeg_oversampling)


@dataclass(frozen=True, config=STRICT)
class Defaults:
    """The default thresholds of `detect`."""

    score_threshold: Fraction
    iou_threshold: Fraction


@dataclass(frozen=True, config=STRICT)
class Extra:
    """A further output for each detection, beside box, score and label.

    shape: without batch and slots. kind: "values", or "points": xy in canvas pixels, which `restore_points`
    converts to pixels of the photograph.
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
    """A precision other than float32, and the changes of detections that the export measured.

    dtype: "tf32", a switch of the runtime; "float16" or "bfloat16", stored in the code. device: the device of
    the measurement. pictures, detections: the numbers that were compared. Box changes are in canvas pixels.
    """

    dtype: Literal["tf32", "float16", "bfloat16"]
    device: Identifier
    pictures: _Count
    detections: _Count
    median_box_change: NonNegativeNumber
    max_box_change: NonNegativeNumber
    max_score_change: NonNegativeNumber


@dataclass(frozen=True, config=STRICT)
class Compiled:
    """The target machine of a compiled package.

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
            raise ValueError("must be empty for a CPU and must not be empty for a GPU")
        return architecture


@dataclass(frozen=True, config=STRICT)
class ArtifactMetadata:
    """The content of `lensbox.json`.

    weights_sha256: `lensbox.model.weights_sha256` of the exported weights.
    input, output: dtype, shape and unit of the tensors, for people and clients.
    ops: schemas of the operators that must be registered before the artifact is loaded.
    classes: names by label; empty for a detector without labels.
    extras: further outputs of `detect`, by name.
    precision: None for float32.
    compiled: the target machine of a compiled package; None for other files.
    batch: the fixed batch size of `detect`, for which runtimes cut and fill batches; None for any size.
    """

    format_version: Literal[3]
    name: str
    lensbox_version: str
    torch_version: str
    weights_sha256: str
    input: dict[str, Any]
    output: dict[str, Any]
    canvas: Canvas
    reading: Reading
    defaults: Defaults
    ops: Annotated[tuple[_Schema, ...], Field(max_length=1000)]
    methods: tuple[Identifier, ...]
    classes: Classes = ()
    extras: Annotated[Mapping[Identifier, Extra], EXTRAS] = field(default_factory=dict)
    precision: Precision | None = None
    compiled: Compiled | None = None
    batch: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    self_test: SelfTest = field(kw_only=True)  # last: its validation needs `classes` and `extras`

    @field_validator("self_test")
    @classmethod
    def _fit_self_test(cls, test: SelfTest, info: ValidationInfo) -> SelfTest:
        return fitted(test, info.data.get("classes", ()), info.data.get("extras", {}))

    @property
    def thresholds(self) -> tuple[float, float]:
        """Return the default thresholds of score and IoU."""
        return self.defaults.score_threshold, self.defaults.iou_threshold

    @property
    def outputs(self) -> tuple[str, ...]:
        """Return the names of the outputs of `detect`, in the order of detect-only files."""
        return ("boxes", "scores", "counts", *(["labels"] if self.classes else []), *self.extras)

    @property
    def points(self) -> list[str]:
        """Return the names of the outputs that hold points."""
        return [name for name, extra in self.extras.items() if extra.kind == "points"]

    def to_json(self) -> str:
        """Return the content of `lensbox.json`."""
        document = _adapter.dump_python(self, mode="json", exclude_none=True)
        for part in (document, (test := document["self_test"])["expected"], *test["tolerance"].values()):
            for name in ("classes", "extras"):
                if not part.get(name, True):
                    del part[name]
        return json.dumps(document)

    @classmethod
    def from_json(cls, text: str | bytes) -> "ArtifactMetadata":
        """Return the metadata of a JSON text. Unknown entries are ignored.

        Raise ValueError, with the path of a malformed value, and for another format version.
        """
        if len(text) > MAX_METADATA_SIZE:
            raise ValueError(too_long(len(text)))
        try:
            # pydantic's parser would accept duplicate keys, NaN and Infinity.
            document = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_no_constant)
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error
        except ValueError as error:
            raise ValueError(f"it is no strict JSON: {error}") from error
        version = document.get("format_version") if isinstance(document, dict) else None
        if type(version) is not int:
            raise ValueError("it has no format_version")
        if version != FORMAT_VERSION:
            writer = f"Lensbox {document.get('lensbox_version', 'of an unknown version')} wrote it"
            rule = f"this Lensbox reads only {FORMAT_VERSION}: export the detector again"
            raise ValueError(f"its format version is {version}, {rule} ({writer})")
        for entry, names in _REQUIRED.items():
            given = document.get(entry)
            if isinstance(given, dict) and (missing := set(names) - given.keys()):
                raise ValueError(f"it is malformed: it lacks the entry '{entry}.{min(missing)}'")
        try:
            return _adapter.validate_json(text)
        except ValidationError as error:
            raise ValueError(f"it is malformed: {first_reason(error)}") from error


_adapter = TypeAdapter(ArtifactMetadata)


def too_long(size: int) -> str:
    """Return the rule that a text of `size` bytes breaks."""
    return f"it has {size} bytes, at most {MAX_METADATA_SIZE} are read"


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} occurs twice")
    return values


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")
