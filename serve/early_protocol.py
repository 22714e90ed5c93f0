"""Connections on which requests can be answered by their heads alone, below ASGI."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

from lensbox.serve.slow_clients import is_idle

_log = logging.getLogger(__name__)


class RequestHead(NamedTuple):
    """method, target: as they came; target is path and query. headers: names in small letters. client: host
    and port, if they are known."""

    method: bytes
    target: bytes
    headers: Sequence[tuple[bytes, bytes]]
    client: tuple[str, int] | None


Refusal = Callable[[RequestHead], "bytes | None"]

_STATUS_LINE = b"HTTP/1.1 503 Service Unavailable\r\n"
# What uvicorn looks at of a connection's request: it drops what comes of the body of this one.
_ANSWERED = SimpleNamespace(response_complete=True, message_event=asyncio.Event())


def early_protocol(protocol: Any, refusal: Refusal | None) -> Any:
    """`protocol`, uvicorn's by httptools, whose requests `refusal` may answer: with the headers and the body
    of a 503, or None to leave a request to the app. What it raises leaves it to the app, too.

    The connection stays open, and what comes of the request's body is dropped.
    """
    if refusal is None:
        return protocol
    ask = refusal

    class EarlyProtocol(protocol):  # type: ignore[misc]
        def on_headers_complete(self) -> None:
            answer = self._refusal()
            if answer is None:
                super().on_headers_complete()
                return
            lines = [b": ".join(header) + b"\r\n" for header in self.server_state.default_headers]
            self.transport.write(b"".join((_STATUS_LINE, *lines, answer)))
            self.cycle = _ANSWERED
            self.on_response_complete()

        def _refusal(self) -> bytes | None:
            parser = self.parser
            # A connection that is to be closed, or whose client takes no answers, is left to uvicorn.
            if (
                not is_idle(self)
                or self.flow.write_paused
                or parser.get_http_version() != "1.1"
                or not parser.should_keep_alive()
            ):
                return None
            try:
                return ask(RequestHead(parser.get_method(), self.url, self.headers, self.client))
            except Exception:  # which the parser would take for a fault of the client's
                _log.exception("a request could not be looked at early, and is left to the app")
                return None

    return EarlyProtocol
