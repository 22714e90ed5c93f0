"""The URL of Docker's HEALTHCHECK."""

import pytest

from lensbox.serve.health_check import url_of_service

_VARIABLES = {"LENSBOX_PORT": "9", "LENSBOX_TLS_CERTIFICATE": "a.pem"}


@pytest.mark.parametrize(
    ("options", "variables", "url"),
    [
        ([], {}, "http://127.0.0.1:8000/livez"),
        (["--port", "8000", "--port", "9000"], {}, "http://127.0.0.1:9000/livez"),
        (["--port=443", "--tls-certificate", "a.pem"], {"LENSBOX_PORT": "9"}, "https://127.0.0.1:443/livez"),
        ([], _VARIABLES, "https://127.0.0.1:9/livez"),
    ],
)
def test_follows_port_and_tls(options: list[str], variables: dict[str, str], url: str) -> None:
    assert url_of_service(["lensbox", "serve", *options], variables) == url
