"""Connections on which requests can be answered by their heads alone, below ASGI."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from lensbox.serve.slow_clients import is_idle


class RequestHead(NamedTuple):
    """method, target: as they came; target is path and query. headers: names in small letters. client: host
    and port, if they are known."""

    method: bytes
    target: bytes
    headers: Sequence[tuple[bytes, bytes]]
    client: tuple[str, int] | None


Refusal = Callable[[RequestHead], "bytes | None"]

_STATUS_LINE = b"HTTP/1.1 503 Service Unavailable\r\n"


def early_protocol(protocol: Any, refusal: Refusal | None) -> Any:
    """`protocol`, one of `patient_protocol`, whose requests `refusal` may answer: with the headers and the
    body of a 503, or None to leave a request to the app.

    The connection stays open, and what comes of the request's body is dropped. For httptools; with h11 the
    app answers everything.
    """
    if refusal is None or not hasattr(protocol, "on_headers_complete"):
        return protocol
    ask = refusal

    class EarlyProtocol(protocol):  # type: ignore[misc]
        def on_headers_complete(self) -> None:
            parser = self.parser
            # A connection that is to be closed, or whose client takes no answers, is left to uvicorn.
            if (
                is_idle(self)
                and not self.flow.write_paused
                and parser.get_http_version() == "1.1"
                and parser.should_keep_alive()
                and not parser.should_upgrade()
            ):
                answer = ask(RequestHead(parser.get_method(), self.url, self.headers, self.client))
                if answer is not None:
                    self.skips_body = True
                    self._send_at_once(answer)
                    return
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            if not self.skips_body:
                super().on_body(body)

        def on_message_complete(self) -> None:
            if not self.skips_body:
                super().on_message_complete()
                return
            self.skips_body, self.has_skipped = False, True
            self._receiving.stop()
            self.on_response_complete()  # uvicorn waits for the next request

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self.has_skipped = False

        def _send_at_once(self, answer: bytes) -> None:
            lines = [b": ".join(header) + b"\r\n" for header in self.server_state.default_headers]
            self.transport.write(b"".join((_STATUS_LINE, *lines, answer)))

    return EarlyProtocol
