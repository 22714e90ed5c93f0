"""A server whose answers a test makes up, on the loopback interface."""

import contextlib
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass
class MadeUpService:
    """url: where it is. connections: how many were opened. keys: what came as Authorization."""

    url: str = ""
    connections: int = 0
    keys: list[str | None] = field(default_factory=list)


@contextlib.contextmanager
def made_up_service(answer: Callable[[str, bytes], tuple[int, Any]]) -> Iterator[MadeUpService]:
    """answer: status and JSON for path and body of a request; called in a thread for each connection."""
    service = MadeUpService()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            service.connections += 1
            super().setup()

        def do_GET(self) -> None:
            service.keys.append(self.headers["Authorization"])
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            status, document = answer(self.path, body)
            content = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET  # noqa: N815  (http.server's name)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        service.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()
