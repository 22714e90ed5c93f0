"""The seal of an artifact file: the last 64 bytes, the SHA-256 of all bytes before them.

The seal detects damage before the file is parsed. The C++ runtime has the same check. The signature signs the
digits of the seal, so the signature covers the whole file.
"""

import hashlib
import struct

MARKER = b"lensbox.sha256"
DIGITS = 64  # length of a SHA-256 in lower-case hex

# Between the marker and the digits: one byte in a zip archive's comment, two in an ONNX file.
_LONGEST_PREFIX = len(MARKER) + 2

# The end record of a zip archive without a comment; its last two bytes are the length of the comment.
_END_RECORD = struct.Struct("<4s4H2IH")
_COMMENT = MARKER + b"="

# ModelProto.metadata_props (field 14), a pair of strings: key (1) and value (2), each behind its length.
_ONNX_ENTRY = b"\x72\x52" + b"\x0a\x0e" + MARKER + b"\x12\x40"


def sealed_zip(archive: bytes) -> bytes:
    """Return a zip archive with its seal as the archive's comment.

    Raises ValueError for other data and for an archive with a comment.
    """
    end = archive[-_END_RECORD.size :]
    if not end.startswith(b"PK\5\6") or not end.endswith(b"\0\0"):
        raise ValueError("archive must be a zip archive without a comment")
    length = struct.pack("<H", len(_COMMENT) + DIGITS)
    return _with_digits(archive[:-2] + length + _COMMENT)


def sealed_onnx(model: bytes) -> bytes:
    """Return a serialized ONNX model with its seal appended as an entry of the model's `metadata_props`.

    A protocol buffer allows appended list entries, so any ONNX runtime reads the file.
    """
    return _with_digits(model + _ONNX_ENTRY)


def seal_of(data: bytes) -> bytes:
    """Return the digits of a file's seal without checking them; the signature signs these 64 bytes."""
    return data[-DIGITS:]


def check_seal(data: bytes) -> None:
    """Check the seal of a file's content.

    Raises ValueError if the seal is missing or does not match. The message continues the file's name.
    """
    if MARKER not in data[-_LONGEST_PREFIX - DIGITS : -DIGITS]:
        raise ValueError(
            f"is damaged or no artifact: it does not end with a seal, {MARKER.decode()} and {DIGITS} digits"
        )
    if hashlib.sha256(memoryview(data)[:-DIGITS]).hexdigest().encode() != seal_of(data):
        raise ValueError("is damaged or was changed: its SHA-256 does not match its seal")


def _with_digits(data: bytes) -> bytes:
    return data + hashlib.sha256(data).hexdigest().encode()
