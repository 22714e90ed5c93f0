"""Exit with 0 if the service of this container answers /livez. For Docker's HEALTHCHECK.

It reads port and scheme from the options of the container's first process, or else from its variables.
"""

import os
import ssl
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path


def url_of_service(arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return the URL of /livez of a `lensbox serve` with these arguments. The last repeated option counts."""
    port = environment.get("LENSBOX_PORT", "8000")
    scheme = "https" if "LENSBOX_TLS_CERTIFICATE" in environment else "http"
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=False):
        name, _, value = argument.partition("=")
        if name == "--port":
            port = value or following
        elif name == "--tls-certificate":
            scheme = "https"
    return f"{scheme}://127.0.0.1:{port}/livez"


if __name__ == "__main__":
    # The certificate names the public host, not 127.0.0.1.
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    url = url_of_service(Path("/proc/1/cmdline").read_text(encoding="utf-8").split("\0"), os.environ)
    try:
        urllib.request.urlopen(url, timeout=4, context=context)
    except OSError as error:  # also an answer of 400 or above
        sys.exit(f"{url}: {error}")
