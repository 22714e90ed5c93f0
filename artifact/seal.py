"""The seal of an artifact file: the SHA-256 of all bytes before it, in the file's last 64 bytes.

The seal finds damage before anything is parsed. The C++ runtime has the same few lines (`src/seal.cpp`). The
signature signs the digits of the seal, so it covers the whole file.
"""

import hashlib
import struct

MARKER = b"lensbox.sha256"
DIGITS = 64  # of a SHA-256, in lower-case hex

# Between the marker and the digits: one byte in a zip archive's comment, two in an ONNX file.
_LONGEST_PREFIX = len(MARKER) + 2

# The end record of a zip archive without a comment; its last two bytes are the length of the comment.
_END_RECORD = struct.Struct("<4s4H2IH")
_COMMENT = MARKER + b"="

# ModelProto.metadata_props (field 14), a pair of strings: key (1) and value (2), each behind its length.
_ONNX_ENTRY = b"\x72\x52" + b"\x0a\x0e" + MARKER + b"\x12\x40"


def sealed_zip(archive: bytes) -> bytes:
    """Return a zip archive with its seal as the archive's comment.

    Raises ValueError if the archive is none, or has a comment already.
    """
    end = archive[-_END_RECORD.size :]
    if not end.startswith(b"PK\5\6") or not end.endswith(b"\0\0"):
        raise ValueError("archive must be a zip archive without a comment")
    length = struct.pack("<H", len(_COMMENT) + DIGITS)
    return _with_digits(archive[:-2] + length + _COMMENT)


def sealed_onnx(model: bytes) -> bytes:
    """Return a serialized ONNX model with its seal appended as an entry of the model's `metadata_props`.

    Entries of a list may simply be appended to a protocol buffer, so any ONNX runtime reads the file.
    """
    return _with_digits(model + _ONNX_ENTRY)


def seal_of(data: bytes) -> bytes:
    """Return the digits of a file's seal, unchecked: the 64 bytes that a signature signs."""
    return data[-DIGITS:]


def check_seal(data: bytes) -> None:
    """Check the seal of a file's content.

    Raises ValueError, to be read after the file's name, if the seal is missing or does not match.
    """
    if MARKER not in data[-_LONGEST_PREFIX - DIGITS : -DIGITS]:
        raise ValueError(
            f"is damaged or no artifact: it does not end with a seal, {MARKER.decode()} and {DIGITS} digits"
        )
    if hashlib.sha256(memoryview(data)[:-DIGITS]).hexdigest().encode() != seal_of(data):
        raise ValueError("is damaged or was changed: its SHA-256 does not match its seal")


def _with_digits(data: bytes) -> bytes:
    return data + hashlib.sha256(data).hexdigest().encode()
