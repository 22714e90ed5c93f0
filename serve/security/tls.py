"""The certificate of the service, looked at before anything is started with it."""

import ssl

from lensbox.common.errors import ExitCode, LensboxError
from lensbox.serve.settings import Settings


class CertificateError(LensboxError):
    """The certificate or its key cannot be used; the message says why."""

    exit_code = ExitCode.UNUSABLE


def check_certificate(settings: Settings) -> None:
    """Raises CertificateError unless certificate and key can be read and belong together."""
    if settings.tls_certificate is None:
        return
    try:
        # Without the empty password OpenSSL would ask for one at the terminal.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(settings.tls_certificate, settings.tls_key, password="")
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise CertificateError(
            f"tls_certificate {settings.tls_certificate} and tls_key {settings.tls_key} must be PEM files "
            f"of a certificate and of its key, without a password: {error}"
        ) from error
