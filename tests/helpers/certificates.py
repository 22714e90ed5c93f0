"""Certificates of 127.0.0.1 for tests of HTTPS."""

from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from signing_keys import KEY, private_pem


def write_certificate(path: Path, password: bytes | None = None) -> Path:
    """Write a key and its own certificate to one PEM file; return the path. password: of the key."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "lensbox")])
    now = datetime.now(timezone.utc)
    validity = now - timedelta(1), now + timedelta(1)
    made = x509.CertificateBuilder(name, name, KEY.public_key(), x509.random_serial_number(), *validity)
    made = made.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), False)
    path.write_bytes(private_pem(KEY, password) + made.sign(KEY, None).public_bytes(Encoding.PEM))
    return path
