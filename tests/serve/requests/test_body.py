"""Compressed bodies."""

import gzip
import zlib

import pytest

from lensbox.serve.errors import ApiError
from lensbox.serve.requests.body import decompress

_CONTENT = bytes(range(256)) * 40


def _compressed(encoding: str, content: bytes = _CONTENT) -> bytearray:
    return bytearray((gzip if encoding == "gzip" else zlib).compress(content))


def test_decompresses_a_body() -> None:
    for encoding in ("gzip", "deflate"):
        assert decompress(_compressed(encoding), encoding, len(_CONTENT)) == _CONTENT
    body = bytearray(b"abc")
    assert decompress(body, "identity", 1) is body  # not copied


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_inflates_at_most_the_limit(encoding: str) -> None:
    bomb = _compressed(encoding, bytes(50_000_000))
    for body, limit in ((bomb, 1000), (_compressed(encoding), len(_CONTENT) - 1)):
        with pytest.raises(ApiError) as caught:
            decompress(body, encoding, limit)
        assert (caught.value.status, caught.value.code) == (413, "body_too_large")
        assert f"at most {limit} bytes" in caught.value.message


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda body: body[:-1], "must be a complete"),
        (lambda body: body + b"more", "got 4 bytes after its end"),
        (lambda body: b"no such thing", "must be valid"),
        (lambda body: body[:-4] + b"\xff" * 4, "must be valid"),
    ],
)
def test_rejects_damaged_bodies(encoding: str, change: object, message: str) -> None:
    assert callable(change)
    with pytest.raises(ApiError) as caught:
        decompress(bytearray(change(_compressed(encoding))), encoding, 10**6)
    assert (caught.value.status, caught.value.code) == (400, "undecodable_body")
    assert message in caught.value.message
