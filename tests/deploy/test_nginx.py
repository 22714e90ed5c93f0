"""deploy/nginx with a real nginx: host names, limits, slow clients, rates and TLS."""

import contextlib
import http.client
import http.server
import os
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator

import pytest
from programs import REPOSITORY, run
from services import free_port, refuses
from waiting import PATIENCE, wait_until

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
HOST = "lensbox.example"
ADDRESS = "127.0.0.2"  # on 127.0.0.1, any program may take a port that was free a moment ago

pytestmark = pytest.mark.skipif(
    NGINX is None and "LENSBOX_REQUIRE_NGINX" not in os.environ, reason="there is no nginx (apt: nginx-light)"
)


class _Upstream(http.server.BaseHTTPRequestHandler):
    """Answer with the request's headers."""

    def do_GET(self) -> None:
        body = str(self.headers).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The HTTPS port of an nginx with the configuration of deploy/, with shorter times and a rate of one."""
    folder = tmp_path_factory.mktemp("nginx")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "key.pem"]
    run("openssl", "req", "-x509", *key, "-out", "certificate.pem", "-subj", f"/CN={HOST}", cwd=folder)
    upstream = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Upstream)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    plain, tls = free_port(), free_port()
    text = (REPOSITORY / "deploy" / "nginx" / "lensbox.conf").read_text(encoding="utf-8")
    temporary = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    for old, new in (
        ("listen 80", f"listen {ADDRESS}:{plain}"),
        ("listen 443", f"listen {ADDRESS}:{tls}"),
        ("127.0.0.1:8000;", f"127.0.0.1:{upstream.server_port};"),
        ("/etc/nginx/tls", str(folder)),
        ("client_header_timeout 10s", "client_header_timeout 1s"),
        ("zone=requests:10m rate=50r/s", "zone=requests:10m rate=1r/m"),
        ("burst=100", "burst=8"),
        ("http {", "http {" + "".join(f"{part}_temp_path {folder};" for part in temporary)),
    ):
        assert old in text
        text = text.replace(old, new)
    (folder / "nginx.conf").write_text(f"daemon off; pid {folder}/pid; error_log stderr;\n{text}")
    process = subprocess.Popen([str(NGINX), "-c", str(folder / "nginx.conf"), "-e", "stderr"])
    try:
        wait_until(lambda: not refuses(f"http://{ADDRESS}:{plain}"))
        yield tls
    finally:
        process.terminate()
        process.wait(PATIENCE)
        upstream.shutdown()
        upstream.server_close()


def connected(port: int) -> ssl.SSLSocket:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(socket.create_connection((ADDRESS, port), PATIENCE), server_hostname=HOST)


def ask(port: int, head: str, path: str = "/v1/model") -> tuple[int, str]:
    """Return status and body of the answer to a GET with these header lines."""
    with connected(port) as client:
        client.sendall(f"GET {path} HTTP/1.1\r\n{head}\r\n".encode())
        response = http.client.HTTPResponse(client)
        response.begin()
        return response.status, response.read().decode()


def test_shuts_out_strangers_large_heads_high_rates_and_slow_clients(port: int) -> None:
    for head, path, expected in (
        ("Host: other.example\r\n", "/", 421),
        ("", "/", 400),
        (f"Host: {HOST}\r\nHost: {HOST}\r\n", "/", 400),
        (f"Host: {HOST}\r\nX-Long: {'x' * 17_000}\r\n", "/", 400),
        (f"Host: {HOST}\r\nContent-Length: {1 << 25}\r\n", "/", 413),
        (f"Host: {HOST}\r\n", "/metrics", 404),
    ):
        assert ask(port, head, path)[0] == expected, head[:50]
    with connected(port) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHost:")
        head = f"Host: {HOST}\r\nUpgrade: h2c\r\nX-Forwarded-For: 1.2.3.4\r\n"
        status, received = ask(port, head)
        assert status == 200
        assert "X-Forwarded-For: 127.0.0.1" in received
        assert "Upgrade" not in received
        statuses = [ask(port, f"Host: {HOST}\r\n")[0] for _ in range(10)]
        assert statuses[-1] == 429
        with contextlib.suppress(ConnectionResetError, ssl.SSLError):
            assert slow.recv(1) == b""
