"""Certificates for tests of TLS."""

import contextlib
import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from signing_keys import private_pem


def write_certificate(folder: Path, host: str, password: bytes | None = None) -> tuple[Path, Path]:
    """A certificate of a host, a name or an IP address, signed by itself, and its key; both PEM files."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    subject: x509.GeneralName = x509.DNSName(host)
    with contextlib.suppress(ValueError):
        subject = x509.IPAddress(ipaddress.ip_address(host))
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([subject]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(exist_ok=True)
    (folder / "key.pem").write_bytes(private_pem(key, password))
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    return folder / "certificate.pem", folder / "key.pem"
