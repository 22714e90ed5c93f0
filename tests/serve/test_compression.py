"""Compressed bodies, and answers."""

import gzip
import zlib

import pytest

from lensbox.serve.compression import accepted_encoding, check_encoding, compress, decompress
from lensbox.serve.errors import ApiError

_CONTENT = bytes(range(256)) * 40


def _compressed(encoding: str) -> bytearray:
    return bytearray(gzip.compress(_CONTENT) if encoding == "gzip" else zlib.compress(_CONTENT))


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_there_and_back(encoding: str) -> None:
    assert decompress(_compressed(encoding), encoding, len(_CONTENT)) == _CONTENT
    parts: list[bytes | memoryview] = [_CONTENT[:100], memoryview(_CONTENT)[100:]]
    assert decompress(bytearray(compress(parts, encoding)), encoding, len(_CONTENT)) == _CONTENT


def test_what_is_not_compressed_is_not_copied() -> None:
    body = bytearray(b"abc")
    assert decompress(body, "identity", 1) is body


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_no_more_is_inflated_than_is_allowed(encoding: str) -> None:
    bomb = bytearray(
        gzip.compress(bytes(50_000_000)) if encoding == "gzip" else zlib.compress(bytes(50_000_000))
    )
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
        (lambda body: body[:20], "must be a complete"),
        (lambda body: body + b"more", "got 4 bytes behind its end"),
        (lambda body: body * 2, "bytes behind its end"),
        (lambda body: b"no such thing", "must be valid"),
        (lambda body: body[:-4] + b"\xff" * 4, "must be valid"),
    ],
)
def test_damaged_bodies(encoding: str, change: object, message: str) -> None:
    assert callable(change)
    with pytest.raises(ApiError) as caught:
        decompress(bytearray(change(_compressed(encoding))), encoding, 10**6)
    assert (caught.value.status, caught.value.code) == (400, "undecodable_body")
    assert message in caught.value.message


def test_encodings_by_name() -> None:
    assert [check_encoding(name) for name in ("GZIP", " deflate", "identity")] == [
        "gzip",
        "deflate",
        "identity",
    ]
    with pytest.raises(ApiError, match="must be identity, gzip or deflate, got 'br'") as caught:
        check_encoding("br")
    assert caught.value.status == 415


@pytest.mark.parametrize(
    ("header", "encoding"),
    [
        ("", "identity"),
        ("gzip", "gzip"),
        ("br, GZIP", "gzip"),
        ("deflate, gzip", "deflate"),
        ("deflate;q=0.5, gzip;q=0.8", "gzip"),
        ("gzip;q=0, deflate", "deflate"),
        ("gzip;q=0", "identity"),
        ("gzip; q = 0.1", "gzip"),
        ("gzip;q=much", "identity"),
        ("gzip;q=nan", "identity"),
        ("identity, *", "identity"),
    ],
)
def test_what_a_client_likes_best(header: str, encoding: str) -> None:
    assert accepted_encoding(header, 5000) == encoding
    assert accepted_encoding(header, 100) == "identity"  # not worth it
