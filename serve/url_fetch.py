"""Fetches images from URLs that are allowed, and from nowhere else.

A name is resolved once for each connection, its addresses are checked, and the connection is made to one of
those: what a name means later (DNS rebinding) cannot matter. Redirects are checked like the URLs of clients.
"""

import socket
import ssl
from collections.abc import Iterable
from functools import cached_property
from typing import Any
from urllib.parse import urljoin

import anyio
import httpcore

from lensbox.serve.errors import ApiError, shown
from lensbox.serve.url_rules import NotAllowedError, Target, UrlRules

_MOST_REDIRECTS = 3
_REDIRECTS = (301, 302, 303, 307, 308)
_HEADERS: dict[bytes | str, bytes | str] = {
    "User-Agent": "lensbox",
    "Accept": "image/*",
    "Accept-Encoding": "identity",  # what inflates has no size that is known
    "Connection": "close",
}


class ByteBudget:
    """How many bytes the body and the images of one request may have together."""

    def __init__(self, most: int, used: int = 0) -> None:
        self._most, self._left = most, most - used

    def take(self, count: int) -> None:
        """Raises ApiError (413)."""
        self._left -= count
        if self._left < 0:
            message = f"a request and its images must have at most {self._most} bytes together, got more"
            raise ApiError(413, "body_too_large", message)


class UrlFetcher:
    """rules: what is allowed; timeout: seconds for one URL, from its name to its last byte."""

    def __init__(self, rules: UrlRules, timeout: float) -> None:
        self._rules = rules
        self._timeout = timeout

    async def fetch(self, url: str, budget: ByteBudget) -> bytes:
        """The content of a URL.

        Raises ApiError: 422 for a URL or address that is not allowed, 502 for one that gives no answer, an
        answer other than 200 or too late a one, 413 for more than `budget` has left.
        """
        if not self._rules:
            message = f"url must be left out: this service fetches no images, got {shown(url)}"
            raise ApiError(422, "url_not_allowed", message)
        try:
            with anyio.fail_after(self._timeout):
                return await self._followed(url, budget)
        except NotAllowedError as error:
            raise ApiError(422, "url_not_allowed", f"url {error}, got {shown(url)}") from None
        except TimeoutError:
            raise _failed(url, f"no whole answer within {self._timeout:g} seconds") from None
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            raise _failed(url, str(error) or type(error).__name__) from error

    async def _followed(self, url: str, budget: ByteBudget) -> bytes:
        current = url
        for _ in range(1 + _MOST_REDIRECTS):
            answer = await self._ask(self._rules.check(current), url, budget)
            if isinstance(answer, bytes):
                return answer
            current = urljoin(current, answer)
        raise _failed(url, f"more than {_MOST_REDIRECTS} redirects")

    async def _ask(self, target: Target, url: str, budget: ByteBudget) -> bytes | str:
        """The content, or where it is said to be."""
        where = httpcore.URL(scheme=target.scheme, host=target.host, port=target.port, target=target.path)
        network = _CheckedNetwork(self._rules)
        async with (
            httpcore.AsyncConnectionPool(self._tls, network_backend=network) as pool,
            # httpcore itself would write an address of IPv6 without brackets.
            pool.stream("GET", where, headers={"Host": target.authority, **_HEADERS}) as response,
        ):
            if response.status in _REDIRECTS:
                return _header(response.headers, b"location")
            if response.status != 200:
                raise _failed(url, f"the status {response.status}")
            if _header(response.headers, b"content-encoding") not in ("", "identity"):
                raise _failed(url, "a compressed answer")
            content = bytearray()
            async for piece in response.aiter_stream():
                budget.take(len(piece))
                content += piece
            return bytes(content)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context()


class _CheckedNetwork(httpcore.AsyncNetworkBackend):
    """Connects to addresses that the rules admit. Raises NotAllowedError where a name has no other ones."""

    def __init__(self, rules: UrlRules) -> None:
        self._rules = rules
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self, host: str, port: int, *options: Any, **more: Any
    ) -> httpcore.AsyncNetworkStream:
        try:
            found = await resolve(host, port)
        except OSError as error:
            raise httpcore.ConnectError(f"its host has no address ({error.strerror})") from error
        admitted = [address for address in found if self._rules.admits(address)]
        if not admitted:
            raise NotAllowedError("must be of a host with a public address, or with one that is listed")
        failure: Exception | None = None
        for address in admitted:
            try:
                return await self._network.connect_tcp(address, port, *options, **more)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise httpcore.ConnectError("its host cannot be connected to") from failure


async def resolve(host: str, port: int) -> list[str]:
    """The addresses of a host, each once. Raises OSError."""
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(entry[4][0] for entry in found))


def _header(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> str:
    return next((value.decode("latin-1") for name, value in headers if name.lower() == wanted), "")


def _failed(url: str, what: str) -> ApiError:
    return ApiError(502, "url_failed", f"the image must be there: {shown(url)} gave {what}")
