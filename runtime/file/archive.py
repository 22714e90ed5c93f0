"""Open artifact files: read kind and metadata without running or parsing code."""

import io
import zipfile
import zlib
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from lensbox.common.errors import ArtifactError, no_such_artifact, system_reason
from lensbox.runtime.file.metadata import MAX_METADATA_SIZE, METADATA_FILE, ArtifactMetadata
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
_FOLDER = 0x10  # attribute of MS-DOS
_END_RECORD = b"PK\5\6"  # signature of the end of a zip archive
_ONNX_FIRST_FIELD = b"\x08"  # ModelProto.ir_version; every writer puts this field first


@dataclass(frozen=True)
class ArtifactFile:
    """The content of an artifact file with a valid seal. name: the file's name in errors."""

    data: bytes
    name: str
    kind: FileKind
    metadata: ArtifactMetadata


def read_file(path: str | Path) -> bytes:
    """Return the content of a file. Raises ArtifactError if it is missing or larger than MAX_FILE_SIZE."""
    path = Path(path)
    if path.is_dir():
        raise ArtifactError(f"path must be an artifact file, got the folder {path}")
    try:
        size = path.stat().st_size
        if size > MAX_FILE_SIZE:
            raise ArtifactError(f"{path} must have at most {MAX_FILE_SIZE} bytes, got {size}")
        return path.read_bytes()
    except FileNotFoundError as error:
        raise ArtifactError(no_such_artifact(path)) from error
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {system_reason(error)}") from error


def open_file(data: bytes, name: str) -> ArtifactFile:
    """Check the seal of a file's content and read the metadata. name: the file's name in errors.

    Raises ArtifactError if the file is damaged or no artifact, if an ONNX file has external data or
    non-standard operators, or if the metadata are missing or malformed.
    """
    try:
        if looks_like_onnx(data):
            check_seal(data)
            return ArtifactFile(data, name, "onnx", _metadata(_onnx_metadata(data)))
        if not data.startswith(b"PK"):
            raise ValueError(_rejection(data))
        check_seal(data)
        return _open_archive(data, name)
    except ValueError as error:
        raise ArtifactError(f"{name} {error}") from error


def looks_like_onnx(data: bytes) -> bool:
    """Return whether a file begins like an ONNX model; a zip archive cannot."""
    return data.startswith(_ONNX_FIRST_FIELD)


def _open_archive(data: bytes, name: str) -> ArtifactFile:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = _entries(archive.infolist())
            _check_extent(data, archive.infolist())
            for entry in archive.infolist():
                archive.open(entry).close()  # compares the name before the entry with the directory's
            kind = _kind_of(entries)
            info = entries.get(_METADATA)
            if info is not None and info.file_size > MAX_METADATA_SIZE:
                raise ValueError(f"holds {_METADATA} of {info.file_size} bytes, which is too large")
            if info is not None:
                del info.CRC  # the seal covers all bytes, and torch does not check it either
            text = None if info is None else archive.read(info)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"cannot be read as a zip archive: {error}") from error
    metadata = _metadata(text)
    if kind == "aoti" and metadata.compiled is None:
        raise ValueError(f"has an unusable {METADATA_FILE}: it lacks the entry 'compiled'")
    return ArtifactFile(data, name, kind, metadata)


def _kind_of(entries: Container[str]) -> FileKind:
    for kind, (_, needed) in KINDS.items():
        if needed and all(name in entries for name in needed):
            return kind
    if "data.pkl" in entries:
        raise ValueError("is not a TorchScript file: it holds no code (was it written by torch.save?)")
    raise ValueError("is not an artifact but another zip archive")


def _entries(infos: Iterable[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
    """Return the entries by their name in the archive's only folder, into which torch puts them all.

    Raises ValueError for a second folder, for two names that differ at most by case, because torch finds an
    entry without regard to case, and for a compression that torch does not read.
    """
    entries: dict[str, zipfile.ZipInfo] = {}
    folders, names = set(), set()
    for info in infos:
        folder, slash, name = info.filename.partition("/")
        folders.add(folder + slash)
        if len(folders) > 1 or not slash:
            raise ValueError(f"must have all entries in one folder, got {sorted(folders)}")
        # bytes.lower() changes ASCII alone, as torch does.
        lower = name.encode(errors="surrogateescape").lower()
        if lower in names:
            raise ValueError(f"has two entries {name}")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"must be stored or deflated, got an entry {name} of type {info.compress_type}")
        has_two_sizes = info.compress_type == zipfile.ZIP_STORED and info.compress_size != info.file_size
        if has_two_sizes or (info.external_attr & _FOLDER and not info.is_dir()):
            raise ValueError(f"must have entries that all readers read alike, got {name}")
        names.add(lower)
        entries[name] = info
    return entries


def _check_extent(data: bytes, infos: Sequence[zipfile.ZipInfo]) -> None:
    """Raise ValueError unless the archive begins with its first entry and states its number of entries.

    `zipfile` would read on behind other bytes, and more entries than stated; torch does neither.
    """
    stated = int.from_bytes(data[data.rfind(_END_RECORD) + 10 :][:2], "little")
    if stated != len(infos) or min((info.header_offset for info in infos), default=0) > 0:
        raise ValueError(
            f"must be an archive from its first byte on, of {stated} entries, got {len(infos)} entries"
        )


def _onnx_metadata(data: bytes) -> bytes | None:
    """Return the property `lensbox.json` of an ONNX model.

    Raise ValueError if the model is malformed or has external data, non-standard operators, functions,
    training information, or two properties with one name.
    """
    import lensbox.ops  # noqa: F401 (late: other files are read without the op library)

    file = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return bytes(torch.ops.lensbox_runtime.onnx_metadata(file).numpy()) or None


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
    return "is not an artifact, which begins as a zip archive or an ONNX model"
