"""Connections on which offers of another protocol are left alone, as RFC 9110, section 7.8, allows.

Java's HttpClient offers HTTP/2 (`Upgrade: h2c`) with every request over plain HTTP. httptools stops behind
such a head, and uvicorn would answer without the body, which it then took for another request.
"""

import contextlib
from typing import Any

import httptools


def offers_left_alone(protocol: Any) -> Any:
    """`protocol`, uvicorn's by httptools, which sees such a request once, and without the header Upgrade."""

    class OffersLeftAlone(protocol):  # type: ignore[misc]
        parser: Any

        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **more)
            self.parser = _Parser(self.parser, self)

        def on_headers_complete(self) -> None:
            if not self.parser.has_offer:
                super().on_headers_complete()

        def on_message_complete(self) -> None:
            if not self.parser.has_offer:
                super().on_message_complete()

    return OffersLeftAlone


class _Parser:
    """httptools' parser of a connection; another one reads a head with an offer again, without that."""

    def __init__(self, parser: Any, connection: Any) -> None:
        self._connection = connection
        self._use(parser)

    def _use(self, parser: Any) -> None:
        self._parser = parser
        self.get_http_version, self.get_method = parser.get_http_version, parser.get_method
        self.should_keep_alive, self.should_upgrade = parser.should_keep_alive, parser.should_upgrade

    @property
    def has_offer(self) -> bool:
        """Of the request that is being read. CONNECT is none, and has no other meaning here."""
        return bool(self.should_upgrade()) and self.get_method() != b"CONNECT"

    def feed_data(self, data: bytes) -> None:
        """As httptools does it."""
        rest = memoryview(data)
        while True:
            try:
                self._parser.feed_data(rest)
                return
            except httptools.HttpParserUpgrade as stopped:
                if not self.has_offer:
                    raise
                rest = rest[stopped.args[0] :]
                head = self._head()
            parser = httptools.HttpRequestParser(self._connection)
            with contextlib.suppress(AttributeError):  # httptools < 0.6.3
                parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
            self._use(parser)
            parser.feed_data(head)

    def _head(self) -> bytes:
        method, version = self.get_method(), self.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (method, self._connection.url, version)]
        lines += [b"%b: %b" % header for header in self._connection.headers if header[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])
