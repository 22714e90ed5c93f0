"""The client that times a service."""

import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from lensbox.bench import service_load


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    connections: ClassVar[set[tuple[str, int]]] = set()
    paths: ClassVar[Counter[str]] = Counter()

    def do_POST(self) -> None:
        self.connections.add(self.client_address)
        self.paths[self.path] += 1
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200 if self.path == "/v1/loss" else 429)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_every_client_keeps_its_connection(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = tmp_path / "image.png"
    image.write_bytes(b"an image")
    service_load.main([url, str(image), "--clients", "3", "--requests", "12"])
    assert _Handler.paths == {"/v1/detect": 12, "/v1/loss": 12}
    assert len(_Handler.connections) == 6
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" median")[0] for line in lines] == [
        "/v1/detect: 3 clients,",
        "/v1/loss: 3 clients,",
    ]
    assert [line.partition("statuses ")[2] for line in lines] == ["{429: 12}", "{200: 12}"]
