"""deploy/nginx: slow clients are disconnected while other clients get answers."""

import contextlib
import http.server
import os
import shutil
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from deployed import DEPLOY
from free_port import free_port
from services import refuses
from waiting import PATIENCE, wait_until

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")

pytestmark = pytest.mark.skipif(
    NGINX is None and "LENSBOX_REQUIRE_NGINX" not in os.environ, reason="there is no nginx (apt: nginx-light)"
)


class _Upstream(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """The port of an nginx with the configuration of deploy/, but shorter timeouts."""
    upstream = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Upstream)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    listening = free_port()
    text = (DEPLOY / "nginx" / "lensbox.conf").read_text(encoding="utf-8")
    for old, new in (
        ("listen 8080", f"listen 127.0.0.1:{listening}"),
        ("127.0.0.1:8000;", f"127.0.0.1:{upstream.server_port};"),
        ("client_header_timeout 10s", "client_header_timeout 1s"),
    ):
        assert old in text
        text = text.replace(old, new)
    temporary = "".join(
        f"{name}_temp_path {tmp_path};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    text = text.replace("http {", f"http {{ {temporary}")
    (tmp_path / "nginx.conf").write_text(f"daemon off; pid {tmp_path}/pid; error_log stderr;\n{text}")
    process = subprocess.Popen([str(NGINX), "-c", str(tmp_path / "nginx.conf"), "-e", "stderr"])
    try:
        wait_until(lambda: not refuses(f"http://127.0.0.1:{listening}"))
        assert process.poll() is None
        yield listening
    finally:
        process.terminate()
        process.wait(PATIENCE)
        upstream.shutdown()
        upstream.server_close()


def test_closes_the_connection_of_a_slow_client(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHost:")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/model", timeout=PATIENCE) as answer:
            assert answer.read() == b"ok"
        with contextlib.suppress(ConnectionResetError):
            assert slow.recv(1) == b""


def test_does_not_expose_metrics(port: int) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE)
