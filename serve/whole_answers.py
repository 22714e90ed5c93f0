"""Connections that send an answer's head together with its body.

uvicorn writes them one after the other: two packets, for each of which the kernel is called, and the client
woken up.
"""

import asyncio
from typing import Any

_SMALL = 1 << 16  # bytes that are copied faster than sent apart


def whole_answers_protocol(protocol: Any) -> Any:
    """`protocol`, uvicorn's by httptools, with such answers."""

    class WholeAnswersProtocol(protocol):  # type: ignore[misc]
        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._gathering = _Gathering(transport, self.loop)

        def on_headers_complete(self) -> None:
            super().on_headers_complete()
            if self.cycle is not None:
                self.cycle.transport = self._gathering

        def on_response_complete(self) -> None:
            # Else what the connection itself writes could come before an answer without a body.
            self._gathering.flush()
            super().on_response_complete()

    return WholeAnswersProtocol


class _Gathering:
    """A transport, as uvicorn's requests use it, that keeps what is written first until more comes, or until
    the loop's next turn."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._kept = b""

    def write(self, data: bytes) -> None:
        if not self._kept:
            self._kept = data
            self._loop.call_soon(self.flush)
        elif len(data) < _SMALL:
            self._kept += data
            self.flush()
        else:
            self.flush()
            self._transport.write(data)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def flush(self) -> None:
        """Writes what was kept."""
        if self._kept:
            kept, self._kept = self._kept, b""
            self._transport.write(kept)
