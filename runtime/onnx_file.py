"""What an artifact's ONNX file is, seen from outside: one ONNX model, sealed by the SHA-256 of its bytes.

A flipped byte in a zip archive fails its checksum; ONNX, a protocol buffer, has none. So the file ends with
an entry of the model's `metadata_props` that holds the hash of everything before it. In a protocol buffer,
later entries of a list may simply be appended, so other runtimes read the file like any other.
"""

import hashlib

HASH_KEY = "lensbox.sha256"

_FIRST_FIELD = b"\x08"  # ModelProto.ir_version, which every writer puts first
# ModelProto.metadata_props (field 14), a pair of strings: key (1) and value (2), each behind its length.
_SEAL = b"\x72\x52" + b"\x0a\x0e" + HASH_KEY.encode() + b"\x12\x40"
_DIGITS = 64


def looks_like_onnx(data: bytes) -> bool:
    """Whether a file begins as an ONNX model does, and no zip archive can."""
    return data.startswith(_FIRST_FIELD)


def sealed(model: bytes) -> bytes:
    """The serialized model with its hash appended."""
    return model + _SEAL + hashlib.sha256(model).hexdigest().encode()


def check_seal(data: bytes) -> None:
    """Raises ValueError, to be read after the file's name, unless the file is as `sealed` made it."""
    model, seal = data[: -len(_SEAL) - _DIGITS], data[-len(_SEAL) - _DIGITS :]
    if not seal.startswith(_SEAL):
        raise ValueError(
            f"is no artifact as Lensbox wrote it: it does not end with its {HASH_KEY} (a damaged file, one "
            "that another program wrote or changed, or a network alone)"
        )
    if hashlib.sha256(model).hexdigest().encode() != seal[len(_SEAL) :]:
        raise ValueError(f"is damaged or was changed: its bytes do not have its {HASH_KEY}")
