"""Verify the signature of an artifact: Ed25519 over the 64 digits of the file's seal.

The signature of FILE is in FILE.sig, as 64 raw bytes. Keys are PEM files. docs/artifact.md shows how OpenSSL
makes and verifies the same files.
"""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from lensbox.artifact.seal import check_seal, seal_of
from lensbox.common.errors import ArtifactError, system_reason

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

_SIGNATURE_SIZE = 64
_MAX_KEY_SIZE = 1 << 16


def signature_path(path: Path) -> Path:
    """Return the path of a file's signature."""
    return path.with_name(f"{path.name}.sig")


def require_signature(path: Path, data: bytes, public_key: Path) -> None:
    """Check that the owner of a public key signed `data`, the content of the file `path`.

    The file is not parsed. Raises ArtifactError if the seal or the signature is missing or does not
    match, the key file holds no Ed25519 key, or the package cryptography is not installed.
    """
    try:
        from cryptography.exceptions import InvalidSignature
    except ModuleNotFoundError as error:
        raise ArtifactError(
            f"the signature of {path} cannot be checked: the Python package 'cryptography' is not installed; "
            "install it with\n  pip install 'lensbox[sign]'"
        ) from error
    key = _read_public_key(public_key)
    signature = _read_signature(path)
    try:
        check_seal(data)
    except ValueError as error:
        raise ArtifactError(f"{path} {error}") from error
    try:
        key.verify(signature, seal_of(data))
    except InvalidSignature as error:
        raise ArtifactError(
            f"{path} must be signed with the key of {public_key}, but {signature_path(path)} does not match: "
            "one of the two files was changed, or another key signed them"
        ) from error


def _read_signature(path: Path) -> bytes:
    signature_file = signature_path(path)
    if not signature_file.is_file():
        raise ArtifactError(f"{path} is not signed: there is no file {signature_file}")
    try:
        with signature_file.open("rb") as file:
            signature = file.read(_SIGNATURE_SIZE + 1)
    except OSError as error:
        raise ArtifactError(
            f"{signature_file}, the signature of {path}, cannot be read: {system_reason(error)}"
        ) from error
    if len(signature) != _SIGNATURE_SIZE:
        size = f"{len(signature)}" if len(signature) < _SIGNATURE_SIZE else "more"
        raise ArtifactError(
            f"{signature_file} is no signature: it must have {_SIGNATURE_SIZE} bytes, got {size}"
        )
    return signature


def _read_public_key(path: Path) -> "Ed25519PublicKey":
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        with path.open("rb") as file:
            content = file.read(_MAX_KEY_SIZE)
    except OSError as error:
        raise ArtifactError(f"the public key {path} cannot be read: {system_reason(error)}") from error
    key: object = None
    with contextlib.suppress(ValueError, UnsupportedAlgorithm):
        key = load_pem_public_key(content)
    if not isinstance(key, Ed25519PublicKey):
        raise ArtifactError(
            f"{path} must be a PEM file with an Ed25519 public key (BEGIN PUBLIC KEY), as `lensbox sign "
            "--new-key` writes"
        )
    return key
