"""HEAD is answered as GET is, without the body."""

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize(
    "path", ["/healthz", "/readyz", "/v2/health/ready", "/metrics", "/openapi.json", "/no"]
)
def test_the_answer_is_that_to_get_without_its_body(start: Callable[..., Any], path: str) -> None:
    client = start().client
    for _ in range(2):  # nothing of the body is left on the connection
        head, get = client.head(path), client.get(path)
        assert (head.status_code, head.content) == (get.status_code, b"")
        assert head.headers["content-type"] == get.headers["content-type"]
        if path != "/metrics":  # which grow
            assert head.headers["content-length"] == str(len(get.content))


def test_it_is_counted_for_its_endpoint(start: Callable[..., Any]) -> None:
    client = start().client
    counted = 'lensbox_requests_total{route="/v2/health/live",status="200"} 1.0'
    assert client.head("/v2/health/live").status_code == 200
    assert counted in client.get("/metrics").text


def test_what_takes_no_get_takes_no_head(start: Callable[..., Any]) -> None:
    head = start().client.head("/v1/detect")
    assert (head.status_code, head.headers["allow"]) == (405, "POST")
