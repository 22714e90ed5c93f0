"""Keys, bad signatures and bad keys for the tests of signatures."""

from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ed25519, x25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from lensbox.runtime.file.seal import seal_of

KEY = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER_KEY = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(32))


def signature_of(data: bytes, key: ed25519.Ed25519PrivateKey = KEY) -> bytes:
    """Return the signature of an artifact file's content."""
    return key.sign(seal_of(data))


def public_pem(key: ed25519.Ed25519PrivateKey | x25519.X25519PrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def private_pem(key: ed25519.Ed25519PrivateKey, password: bytes | None = None) -> bytes:
    encryption = NoEncryption() if password is None else BestAvailableEncryption(password)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


# The content of FILE.sig for an artifact, None for no file; and what both errors say.
BAD_SIGNATURES: dict[str, tuple[Callable[[bytes], bytes | None], str]] = {
    "absent": (lambda data: None, "is not signed: there is no file"),
    "by another key": (lambda data: signature_of(data, OTHER_KEY), "does not match"),
    "empty": (lambda data: b"", "must have 64 bytes"),
    "too long": (lambda data: signature_of(data) + b"\n", "must have 64 bytes"),
}

BAD_PUBLIC_KEYS = {
    "empty": b"",
    "text": b"no key",
    "the private key": private_pem(KEY),
    "an X25519 key": public_pem(x25519.X25519PrivateKey.generate()),
    # OpenSSL would prompt for the password of this file.
    "encrypted": b"-----BEGIN PUBLIC KEY-----\nProc-Type: 4,ENCRYPTED\n"
    b"DEK-Info: AES-256-CBC,00112233445566778899AABBCCDDEEFF\n\n"
    + b"Zm9y" * 12
    + b"\n-----END PUBLIC KEY-----\n",
}


def write_signed(folder: Path, data: bytes, signature: bytes | None) -> tuple[Path, Path]:
    """Write an artifact, its signature, and the public half of KEY; return the paths of artifact and key."""
    artifact, public_key = folder / "signed.pt", folder / "release.key.pub"
    artifact.write_bytes(data)
    public_key.write_bytes(public_pem(KEY))
    if signature is not None:
        (folder / "signed.pt.sig").write_bytes(signature)
    return artifact, public_key
