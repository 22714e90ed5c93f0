"""Make the keys and signatures that `lensbox.runtime.file.seal` verifies."""

import contextlib
import os
from functools import partial
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from lensbox.common.errors import InputError
from lensbox.common.files import atomic_write, read_input, read_regular
from lensbox.runtime.file.archive import MAX_FILE_SIZE
from lensbox.runtime.file.seal import check_seal, seal_of, signature_path


def make_keys(path: Path) -> Path:
    """Write a new private key (mode 0600) and its public key, PATH.pub; return the path of the public key.

    Raise InputError if one of the files exists: keys are never overwritten.
    """
    key = Ed25519PrivateKey.generate()
    public_path = path.with_name(f"{path.name}.pub")
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    with contextlib.ExitStack() as undo:
        for file, content, mode in ((path, private, 0o600), (public_path, public, 0o644)):
            try:
                stream = open(file, "xb", opener=partial(os.open, mode=mode))  # noqa: SIM115 (closed below)
            except FileExistsError as error:
                raise InputError(
                    f"{file} exists already, and a key is never overwritten: name another file"
                ) from error
            undo.callback(file.unlink)
            with stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
        undo.pop_all()
    return public_path


def sign_file(path: Path, key: Path) -> Path:
    """Sign the seal of an artifact file and write the signature; return the path of the signature.

    Raise InputError for a bad private key or a file without a seal, OSError if a file cannot be read or
    written.
    """
    private_key = _read_private_key(key)
    size = path.stat().st_size
    if size > MAX_FILE_SIZE:
        raise InputError(f"{path} must have at most {MAX_FILE_SIZE} bytes, as artifacts do, got {size}")
    target = signature_path(path)
    data = read_regular(path)
    check_seal(data, path, InputError)
    atomic_write(target, private_key.sign(seal_of(data)))
    return target


def _read_private_key(path: Path) -> Ed25519PrivateKey:
    content = read_input(path)
    key: object = None
    try:
        key = load_pem_private_key(content, password=None)
    except TypeError as error:
        raise InputError(
            f"{path} is encrypted; `openssl pkey -in {path} -out FILE` writes the key without a password"
        ) from error
    except (ValueError, UnsupportedAlgorithm):
        pass  # reported below
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(
            f"{path} must be a PEM file with an Ed25519 private key (BEGIN PRIVATE KEY), as `lensbox sign "
            "--new-key` writes"
        )
    return key
