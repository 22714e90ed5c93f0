"""The metadata of an artifact, and `lensbox.json`, the form in which it is stored.

`docs/artifact.md` has the rules by which it is read, here and in C++.
"""

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

from lensbox.runtime.carried_ops import Library
from lensbox.runtime.compiled import Compiled, read_compiled
from lensbox.runtime.detection import Extra
from lensbox.runtime.json_field import Field, FieldError
from lensbox.runtime.metadata_parts import (
    Canvas,
    Orientation,
    Parity,
    Precision,
    Reading,
    read_canvas,
    read_classes,
    read_extras,
    read_parity,
    read_precision,
    read_reading,
)
from lensbox.runtime.orientation import check_orientation
from lensbox.runtime.self_test import SelfTest
from lensbox.runtime.self_test_fields import read_self_test, self_test_to_dict
from lensbox.runtime.strict_json import parse_strict

__all__ = ["FORMAT_VERSION", "ArtifactMetadata", "Canvas", "Orientation", "Parity", "Precision", "Reading"]

FORMAT_VERSION = 2
# Of format 1, whose `preprocess` takes one image, and which says nothing of canvas and reading.
SINGLE_IMAGE_FORMAT = 1
MAX_OPS = 1000
MAX_SCHEMA_LENGTH = 4096
MAX_SCHEMA_NESTING = 16
MAX_LIBRARIES = 16

_SCHEMA = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*(\.\w+)?\([ -~]*\) -> [ -~]+", re.ASCII)
_LIBRARY_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


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
    parity: how near its answers were to those in PyTorch when it was written; empty where that was not asked.
    compiled: what a package of machine code was compiled for; None for other files.
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
    parity: tuple[Parity, ...] = ()
    compiled: Compiled | None = None

    @property
    def outputs(self) -> tuple[str, ...]:
        """Those of `detect_named`, in the order in which files that compute `detect` alone give them."""
        return ("boxes", "scores", "counts", *(["labels"] if self.classes else []), *self.extras)

    def reading_in(self, orientation: Orientation | None) -> Reading:
        """`reading`, but for the orientation, if one is given. Raises ValueError if it is none."""
        if orientation is None:
            return self.reading
        check_orientation(orientation)
        return self.reading._replace(orientation=orientation)

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
        **({"parity": [row._asdict() for row in metadata.parity]} if metadata.parity else {}),
        **({"compiled": metadata.compiled._asdict()} if metadata.compiled else {}),
        "defaults": {"score_threshold": metadata.score_threshold, "iou_threshold": metadata.iou_threshold},
        "ops": list(metadata.ops),
        "methods": list(metadata.methods),
        "self_test": self_test_to_dict(metadata.self_test),
    }


def _read(document: Field, version: int) -> ArtifactMetadata:
    defaults, single = document["defaults"], version == SINGLE_IMAGE_FORMAT
    classes = () if single else read_classes(document)
    extras = {} if single else read_extras(document)
    return ArtifactMetadata(
        format_version=version,
        name=document["name"].text(),
        lensbox_version=document["lensbox_version"].text(),
        torch_version=document["torch_version"].text(),
        weights_sha256=document["weights_sha256"].text(),
        input=document["input"].members(),
        output=document["output"].members(),
        canvas=None if single else read_canvas(document["canvas"]),
        reading=Reading() if single else read_reading(document["reading"]),
        score_threshold=defaults["score_threshold"].fraction(),
        iou_threshold=defaults["iou_threshold"].fraction(),
        ops=tuple(_schema(field) for field in document["ops"].items("operator schemas", most=MAX_OPS)),
        methods=tuple(field.identifier() for field in document["methods"].items("methods")),
        self_test=read_self_test(document["self_test"], len(classes), extras),
        classes=classes,
        extras=extras,
        precision=None if single else read_precision(document),
        libraries=() if single else _libraries(document),
        parity=() if single else read_parity(document),
        compiled=None if single else read_compiled(document),
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
