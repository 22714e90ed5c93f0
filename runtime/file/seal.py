"""The seal of an artifact file, the SHA-256 of all bytes before the last 64, and the signature over the seal.

The seal detects damage before the file is parsed. The signature, Ed25519 over the 64 digits of the seal,
covers the whole file. The signature of FILE is in FILE.sig, as 64 raw bytes. Keys are PEM files.
docs/artifact.md shows how OpenSSL makes and verifies the same files. The C++ runtime has the same checks.
"""

import contextlib
import hashlib
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from lensbox.common.errors import ArtifactError, LensboxError, reading
from lensbox.common.files import open_input, open_regular

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

MARKER = b"lensbox.sha256"
DIGITS = 64  # length of a SHA-256 in lower-case hex

# Between the marker and the digits: one byte in a zip archive's comment, two in an ONNX file.
_LONGEST_PREFIX = len(MARKER) + 2

# The end record of a zip archive without a comment; its last two bytes are the length of the comment.
_END_RECORD = struct.Struct("<4s4H2IH")
_COMMENT = MARKER + b"="

# ModelProto.metadata_props (field 14), a pair of strings: key (1) and value (2), each behind its length.
_ONNX_ENTRY = b"\x72\x52" + b"\x0a\x0e" + MARKER + b"\x12\x40"

# What an archive is that holds this name and no seal; the first name that is found counts. As in seal.cpp.
_EXPORT = "`lensbox export --model` makes an artifact of the module"
_PLAIN_ARCHIVES = {
    b"archive_format": f"a plain program or package of torch.export: {_EXPORT}",
    b"/constants.pkl": f"a plain TorchScript file: {_EXPORT}",
    b"/data.pkl": "a checkpoint of torch.save: `lensbox export --weights` takes it",
}

_SIGNATURE_SIZE = 64
_MAX_KEY_SIZE = 1 << 16


def sealed_zip(archive: bytes) -> bytes:
    """Return a zip archive with its seal as the archive's comment.

    Raise ValueError for other data and for an archive with a comment.
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


def check_seal(data: bytes, name: object, kind: type[LensboxError] = ArtifactError) -> None:
    """Raise an error of this kind if the seal of a file's content is missing or does not match.

    name: the file's name in errors.
    """
    if MARKER not in data[-_LONGEST_PREFIX - DIGITS : -DIGITS]:
        raise kind(f"{name} {_without_seal(data)}")
    if hashlib.sha256(memoryview(data)[:-DIGITS]).hexdigest().encode() != seal_of(data):
        raise kind(f"{name} is damaged or was changed: its SHA-256 does not match its seal")


def _without_seal(data: bytes) -> str:
    """Return what a file without a seal is. Other programs write whole archives with names that tell."""
    if data[-_END_RECORD.size :].startswith(b"PK\5\6"):
        for entry, what in _PLAIN_ARCHIVES.items():
            if entry in data:
                return f"is not an artifact but {what}"
    what = "a plain ONNX model" if data.startswith(b"\x08") else "no artifact"
    return f"is damaged or {what}: it does not end with a seal, {MARKER.decode()} and {DIGITS} digits"


def _with_digits(data: bytes) -> bytes:
    return data + hashlib.sha256(data).hexdigest().encode()


def signature_path(path: Path) -> Path:
    """Return the path of a file's signature."""
    return path.with_name(f"{path.name}.sig")


def check_signature(path: Path, data: bytes, signature: bytes | None, public_key: Path) -> None:
    """Check that the owner of a public key signed `data`, the content of the file `path`.

    The file is not parsed. signature: the result of `read_signature`. Raise ArtifactError if the seal or
    the signature is missing or does not match, the key file holds no Ed25519 key, or the package cryptography
    is not installed.
    """
    try:
        from cryptography.exceptions import InvalidSignature
    except ModuleNotFoundError as error:
        raise ArtifactError(
            f"the signature of {path} cannot be checked: the Python package 'cryptography' is not installed; "
            "install it with\n  pip install 'lensbox[sign]'"
        ) from error
    key = _read_public_key(public_key)
    signature_file = signature_path(path)
    if signature is None:
        raise ArtifactError(f"{path} is not signed: there is no file {signature_file}")
    if len(signature) != _SIGNATURE_SIZE:
        size = f"{len(signature)}" if len(signature) < _SIGNATURE_SIZE else "more"
        raise ArtifactError(
            f"{signature_file} is no signature: it must have {_SIGNATURE_SIZE} bytes, got {size}"
        )
    check_seal(data, path)
    try:
        key.verify(signature, seal_of(data))
    except InvalidSignature as error:
        raise ArtifactError(
            f"{path} must be signed with the key of {public_key}, but {signature_file} does not match: "
            "one of the two files was changed, or another key signed them"
        ) from error


def read_signature(path: Path) -> bytes | None:
    """Return the signature of a file; None if there is none. Raise ArtifactError if it cannot be read."""
    signature_file = signature_path(path)
    if not signature_file.is_file():
        return None
    name = f"{signature_file}, the signature of {path},"
    with reading(name, ArtifactError), open_regular(signature_file) as file:
        return file.read(_SIGNATURE_SIZE + 1)


def _read_public_key(path: Path) -> "Ed25519PublicKey":
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    with reading(f"the public key {path}", ArtifactError), open_input(path) as file:
        content = file.read(_MAX_KEY_SIZE)
    key: object = None
    with contextlib.suppress(ValueError, UnsupportedAlgorithm):
        key = load_pem_public_key(content)
    if not isinstance(key, Ed25519PublicKey):
        raise ArtifactError(
            f"{path} must be a PEM file with an Ed25519 public key (BEGIN PUBLIC KEY), as `lensbox sign "
            "--new-key` writes"
        )
    return key
