"""Open artifact files: read kind and metadata without running or parsing code."""

import io
import os
import struct
import zipfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

import torch

from lensbox.common.errors import ArtifactError, no_such_artifact, system_reason
from lensbox.common.files import open_regular
from lensbox.runtime.file.metadata import MAX_METADATA_SIZE, METADATA_FILE, ArtifactMetadata, too_long
from lensbox.runtime.file.seal import check_seal

INPUTS = ("images", "score_threshold", "iou_threshold")  # names of the inputs of ONNX models
MODEL = "detect"  # the name of the model in a package of machine code, and of the graph in a program
LOSS = "loss"  # the name of a program's other graph
MAX_FILE_SIZE = (1 << 31) - 1  # bytes; limit of protocol buffers, and of zip archives without 64-bit fields

FileKind = Literal["torchscript", "program", "aoti", "onnx"]  # the names of `lensbox export --format`


class Kind(NamedTuple):
    """A kind of artifact files. The module `lensbox.runtime.formats.NAME` has its function `load`.

    title: for people. entries: of the zip archives of this kind, beside all others' entries; () for files
    that are no archives.
    """

    title: str
    entries: tuple[str, ...] = ()


# The first kind that fits is taken.
KINDS: dict[FileKind, Kind] = {
    "program": Kind("Exported program (detect and loss)", ("archive_format", "models/detect.json")),
    "aoti": Kind("AOTInductor package (only detect, machine code)", ("archive_format",)),
    "torchscript": Kind("TorchScript", ("data.pkl", "constants.pkl")),
    "onnx": Kind("ONNX (only detect)"),
}

_METADATA = f"extra/{METADATA_FILE}"
_ONNX_FIRST_FIELD = b"\x08"  # ModelProto.ir_version; every writer puts this field first


@dataclass(frozen=True)
class ArtifactFile:
    """The content of an artifact file with a valid seal. name: the file's name in errors."""

    data: bytes
    name: str
    kind: FileKind
    metadata: ArtifactMetadata


def read_file(path: str | Path) -> bytes:
    """Return the content of a file. Raise ArtifactError if it is missing or larger than MAX_FILE_SIZE."""
    path = Path(path)
    try:
        if path.is_dir():
            raise ArtifactError(f"path must be an artifact file, got the folder {path}")
        with open_regular(path) as file:
            if (size := os.fstat(file.fileno()).st_size) > MAX_FILE_SIZE:
                raise ArtifactError(f"{path} must have at most {MAX_FILE_SIZE} bytes, got {size}")
            return file.read()
    except FileNotFoundError as error:
        raise ArtifactError(no_such_artifact(path)) from error
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {system_reason(error)}") from error


def open_file(data: bytes, name: str) -> ArtifactFile:
    """Check the seal of a file's content and read the metadata. name: the file's name in errors.

    Raise ArtifactError if the file is damaged or no artifact, if an ONNX file has external data or
    non-standard operators, or if the metadata are missing or malformed.
    """
    try:
        if not looks_like_onnx(data) and not data.startswith(b"PK"):
            raise ValueError(_rejection(data))
        check_seal(data, name)
        if not looks_like_onnx(data):
            return _open_archive(data, name)
        import lensbox.ops  # noqa: F401 (late: archives are read without the op library)

        model = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        text = bytes(torch.ops.lensbox_runtime.onnx_metadata(model).numpy()) or None
        return ArtifactFile(data, name, "onnx", _metadata(text))
    except ValueError as error:
        raise ArtifactError(f"{name} {error}") from error


def looks_like_onnx(data: bytes) -> bool:
    """Return whether a file begins like an ONNX model; a zip archive cannot."""
    return data.startswith(_ONNX_FIRST_FIELD)


def _open_archive(data: bytes, name: str) -> ArtifactFile:
    """Read kind and metadata with torch's own reader, so that torch loads what was read here."""
    try:
        archive = torch.PyTorchFileReader(io.BytesIO(data))
        entries = archive.get_all_records()
        text = _metadata_text(archive, data) if _METADATA in entries else None
    except (RuntimeError, MemoryError) as error:
        raise ValueError(f"cannot be read as an archive of torch: {error}") from error
    # torch finds an entry without regard to case, of ASCII letters alone.
    count = Counter(entry.encode().lower() for entry in entries)
    if twice := [entry for entry in entries if count[entry.encode().lower()] > 1]:
        raise ValueError(f"has two entries {twice[-1]}")
    kinds = [kind for kind, (_, needed) in KINDS.items() if needed and set(needed).issubset(entries)]
    if not kinds:
        raise ValueError("is not a TorchScript file: it holds no code (was it written by torch.save?)")
    kind, metadata = kinds[0], _metadata(text)
    if kind == "aoti" and metadata.compiled is None:
        raise ValueError(f"has an unusable {METADATA_FILE}: it lacks the entry 'compiled'")
    return ArtifactFile(data, name, kind, metadata)


def _metadata_text(archive: torch.PyTorchFileReader, data: bytes) -> bytes:
    """Return the entry of the metadata. torch inflates it to the size in the directory and no further."""
    size = inflated_sizes(io.BytesIO(data)).get(_METADATA.lower())
    if size is None:
        raise ValueError(f"has a directory in which only one of two readers finds {METADATA_FILE}")
    if size > MAX_METADATA_SIZE:
        raise ValueError(f"has an unusable {METADATA_FILE}: {too_long(size)}")
    return archive.get_record(_METADATA)


def inflated_sizes(file: BinaryIO) -> dict[str, int]:
    """Return the sizes that the directory of an archive of torch gives, by names of records in lower case.

    (torch 2.11 has no function for this.) Raise ValueError for a file that is no archive.
    """
    sizes: dict[str, int] = {}
    try:
        with zipfile.ZipFile(file) as archive:
            for entry in archive.infolist():
                name = entry.filename.partition("/")[2].lower()
                sizes[name] = max(entry.file_size, sizes.get(name, 0))
    except (zipfile.BadZipFile, NotImplementedError, OSError, EOFError, struct.error) as error:
        raise ValueError(f"cannot be read as an archive: {error}") from error
    return sizes


def _metadata(text: bytes | None) -> ArtifactMetadata:
    if text is None:
        raise ValueError(
            f"is not a Lensbox artifact: it holds no {METADATA_FILE}; `lensbox export` writes artifacts"
        )
    try:
        return ArtifactMetadata.from_json(text)
    except ValueError as error:
        raise ValueError(f"has an unusable {METADATA_FILE}: {error}") from error


def _rejection(data: bytes) -> str:
    """Return why a file without the signature of an archive or a model is rejected."""
    if not data:
        return "is not an artifact: it is empty"
    if data[8:9] == b"{":  # after the length of a safetensors file's header
        return "is not an artifact but holds weights: `lensbox export --weights` takes it"
    if data.startswith((b"\xff\xd8\xff", b"\x89PNG")):
        return "is not an artifact but an image"
    if data.startswith(b"\x80\x02"):
        return "is not an artifact but a pickle, such as an old checkpoint of torch.save"
    return "is not an artifact, which begins as a zip archive or an ONNX model"
