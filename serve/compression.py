"""Bodies that are compressed with gzip or deflate, both ways."""

import zlib
from collections.abc import Iterable

from lensbox.serve.errors import ApiError, shown

_WINDOW_BITS = {"gzip": zlib.MAX_WBITS + 16, "deflate": zlib.MAX_WBITS}  # deflate: RFC 1950, as HTTP says
_LEVEL = 1  # tensors gain little from more, and wait for it
_LEAST = 1024  # bytes that are worth it


def check_encoding(encoding: str) -> str:
    """A Content-Encoding in small letters: identity, gzip or deflate. Raises ApiError (415) for others."""
    name = encoding.strip().lower()
    if name not in ("identity", *_WINDOW_BITS):
        message = f"Content-Encoding must be identity, gzip or deflate, got {shown(encoding)}"
        raise ApiError(415, "unsupported_encoding", message)
    return name


def decompress(body: bytearray, encoding: str, limit: int) -> bytearray:
    """The content of a body, at most `limit` bytes: no more is ever inflated, whatever the body claims.

    encoding: as `check_encoding` gives it. Raises ApiError: 400 damaged, cut off or followed by more, 413 too
    large.
    """
    if encoding == "identity":
        return body
    inflater = zlib.decompressobj(_WINDOW_BITS[encoding])
    try:
        content = bytearray(inflater.decompress(body, limit + 1))
    except zlib.error as error:
        raise _damaged(f"the body must be valid {encoding}: {error}") from None
    if len(content) > limit:
        message = f"the body must have at most {limit} bytes, got more once it is decompressed"
        raise ApiError(413, "body_too_large", message)
    if not inflater.eof:
        raise _damaged(f"the body must be a complete {encoding} stream, got {len(body)} bytes of one")
    if inflater.unused_data:  # or a body of empty members would cost much and say nothing
        rest = len(inflater.unused_data)
        raise _damaged(f"the body must be one {encoding} stream, got {rest} bytes behind its end")
    return content


def compress(parts: Iterable[bytes | memoryview], encoding: str) -> bytes:
    """gzip or deflate of the parts, one behind the other."""
    deflater = zlib.compressobj(_LEVEL, wbits=_WINDOW_BITS[encoding])
    return b"".join([*map(deflater.compress, parts), deflater.flush()])


def accepted_encoding(accept_encoding: str, size: int) -> str:
    """How an answer of `size` bytes is sent to a client with this Accept-Encoding header.

    That is what it likes best of gzip and deflate, the first of two that it likes as much; else identity.
    """
    best, best_weight = "identity", 0.0
    for choice in accept_encoding.split(",") if size >= _LEAST else ():
        name, _, parameter = choice.strip().lower().partition(";")
        weight = _weight(parameter)
        if name.strip() in _WINDOW_BITS and weight > best_weight:
            best, best_weight = name.strip(), weight
    return best


def _weight(parameter: str) -> float:
    """Of q=WEIGHT; 1 without one, 0 if it cannot be read."""
    name, _, value = parameter.strip().partition("=")
    if name.strip() != "q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0


def _damaged(message: str) -> ApiError:
    return ApiError(400, "undecodable_body", message)
