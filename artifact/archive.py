"""The entries of an artifact file, read from its bytes after the seal."""

import io
import zipfile
import zlib

from lensbox.artifact.seal import check_seal

# Beyond it the zip format needs other fields, and no detector is so large.
MAX_FILE_SIZE = (1 << 31) - 1
# All entries together may hold that many bytes, or four times the size of the file.
MIN_CONTENT_LIMIT = 64 << 20

INPUTS = ("images", "score_threshold", "iou_threshold")  # of the models in ONNX files
MODEL = "detect"  # the name of the model in a package of machine code

_ONNX_FIRST_FIELD = b"\x08"  # ModelProto.ir_version, which every writer puts first


def looks_like_onnx(data: bytes) -> bool:
    """Return whether a file begins as an ONNX model does, and no zip archive can."""
    return data.startswith(_ONNX_FIRST_FIELD)


def read_entries(data: bytes) -> dict[str, bytes]:
    """Return the content of each entry of a zip archive, by its name below the one folder of the archive.

    Raises ValueError, to be read after the file's name, if the file is no archive, its seal is missing or
    does not match, or its entries cannot be read or are too large.
    """
    if not data.startswith(b"PK"):
        raise ValueError(f"is not a TorchScript file{_what_else(data)}")
    check_seal(data)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            limit = max(MIN_CONTENT_LIMIT, 4 * len(data))
            total = sum(info.file_size for info in archive.infolist())
            if total > limit:
                raise ValueError(f"has entries of {total} bytes, at most {limit} are read")
            return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"cannot be read as a zip archive: {error}") from error


def _what_else(data: bytes) -> str:
    if data[8:9] == b"{":  # after the length of a safetensors file's header
        return " but holds weights: `lensbox export --weights` takes it"
    if not data:
        return ": it is empty"
    if data.startswith((b"\xff\xd8\xff", b"\x89PNG")):
        return " but an image"
    return ", which is a zip archive"
