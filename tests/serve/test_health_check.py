"""The URL of Docker's HEALTHCHECK."""

import pytest

from lensbox.serve.health_check import url_of_service


@pytest.mark.parametrize(
    ("options", "url"),
    [
        ([], "http://127.0.0.1:8000/livez"),
        (["--port", "8000", "--port", "9000"], "http://127.0.0.1:9000/livez"),
        (["--port=443", "--tls-certificate", "a.pem", "--tls-key", "a.key"], "https://127.0.0.1:443/livez"),
    ],
)
def test_follows_port_and_tls(options: list[str], url: str) -> None:
    assert url_of_service(["lensbox", "serve", *options], {}) == url
    assert url_of_service([], {"LENSBOX_PORT": "9", "LENSBOX_TLS_CERTIFICATE": "a"}).startswith(
        "https://127.0.0.1:9/"
    )
