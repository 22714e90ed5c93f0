"""Images fetched from URLs: what is connected to, how much and for how long."""

import asyncio
import contextlib
import http.server
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import write_certificate

from lensbox.serve import url_fetch
from lensbox.serve.errors import ApiError
from lensbox.serve.url_fetch import ByteBudget, UrlFetcher
from lensbox.serve.url_rules import UrlRules


class Site:
    """A server on the loopback interface. `heads`: the request lines and Host headers that it got."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        site = self
        self.heads: list[tuple[str, str | None]] = []
        self.released = threading.Event()
        self.files: dict[str, bytes] = {}

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                site.heads.append((self.path, self.headers["Host"]))
                with contextlib.suppress(OSError):
                    site.answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def answer(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        """By path: /redirect?URL, /status?CODE, /bytes?N, /endless, /drip, /stuck, /gzip; else a file or the
        path."""
        kind, _, value = handler.path.partition("?")
        content = self.files.get(handler.path, handler.path.encode())
        if kind == "/redirect":
            handler.send_response(302)
            handler.send_header("Location", value)
            content = b""
        elif kind == "/status":
            handler.send_response(int(value))
        else:
            handler.send_response(200)
        if kind == "/gzip":
            handler.send_header("Content-Encoding", "gzip")
        if kind == "/bytes":
            content = bytes(int(value))
        if kind in ("/endless", "/drip", "/stuck"):
            handler.send_header("Connection", "close")
            handler.end_headers()
            while not self.released.wait(0.02 if kind == "/drip" else 0):
                if kind != "/stuck":
                    handler.wfile.write(b"x" if kind == "/drip" else bytes(65536))
                elif self.released.wait(60):
                    break
            handler.close_connection = True
            return
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    def close(self) -> None:
        self.released.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(60)


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()


def fetched(url: str, allowed: str, most: int = 1 << 20, timeout: float = 20.0, used: int = 0) -> bytes:
    fetcher = UrlFetcher(UrlRules(allowed), timeout)
    return asyncio.run(fetcher.fetch(url, ByteBudget(most, used)))


def refused(*arguments: Any, **options: Any) -> tuple[int, str, str]:
    with pytest.raises(ApiError) as caught:
        fetched(*arguments, **options)
    return caught.value.status, caught.value.code, caught.value.message


def names(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Makes the answers those of the resolver, one after the other; gives the list of what was asked."""
    asked: list[str] = []
    left = list(answers)

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return left.pop(0)

    monkeypatch.setattr(url_fetch, "resolve", resolve)
    return asked


def test_a_listed_address_is_fetched_from(site: Site) -> None:
    here = f"http://127.0.0.1:{site.port}/"
    assert fetched(f"{here}a/b.jpg?c=%20d#e", here) == b"/a/b.jpg?c=%20d"
    assert site.heads == [("/a/b.jpg?c=%20d", f"127.0.0.1:{site.port}")]


def test_an_address_of_ipv6_is_named_in_brackets(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch, ["127.0.0.1"])
    allowed = f"http://[2606:4700::1]:{site.port}/"
    assert fetched(f"{allowed}x", f"{allowed},127.0.0.1") == b"/x"
    assert site.heads == [("/x", f"[2606:4700::1]:{site.port}")]


@pytest.mark.parametrize("url", ["http://a.example/x", "https://a.example:443/", "http://a.example:80"])
def test_the_usual_port_is_not_named(url: str) -> None:
    assert UrlRules(url).check(url).authority == "a.example"


def test_nothing_is_fetched_without_an_allow_list(site: Site) -> None:
    status, code, message = refused(f"http://127.0.0.1:{site.port}/", "")
    assert (status, code) == (422, "url_not_allowed")
    assert message.startswith("url must be left out: this service fetches no images, got 'http://127.")
    assert site.heads == []


def test_what_is_not_listed_is_not_fetched(site: Site) -> None:
    status, code, message = refused(f"http://127.0.0.1:{site.port}/b", f"http://127.0.0.1:{site.port}/a")
    assert (status, code) == (422, "url_not_allowed")
    assert message.startswith("url must be one that the service was told to allow, got ")
    assert site.heads == []


def test_a_name_is_resolved_once_and_only_to_what_is_admitted(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that means a public address when it is checked and another one later (DNS rebinding) is of no
    use: there is no later."""
    allowed = f"http://photos.example:{site.port}/"
    asked = names(monkeypatch, ["127.0.0.1"], ["169.254.169.254", "::1"], ["::ffff:127.0.0.1"])
    for _ in range(3):
        status, code, message = refused(f"{allowed}x", allowed)
        assert (status, code) == (422, "url_not_allowed")
        assert message.startswith("url must be of a host with a public address, or with one that is listed")
        assert "127.0.0.1" not in message
    assert site.heads == []
    assert asked == ["photos.example"] * 3
    # The same, where the operator has listed the address; the host is still the one that is asked for.
    asked = names(monkeypatch, ["10.0.0.1", "127.0.0.1"])
    assert fetched(f"{allowed}x", f"{allowed},127.0.0.1") == b"/x"
    assert asked == ["photos.example"]
    assert site.heads == [("/x", f"photos.example:{site.port}")]


def test_the_next_address_is_tried(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = f"http://photos.example:{site.port}/"
    names(monkeypatch, ["127.0.0.2", "127.0.0.1"])  # nobody listens at the first
    assert fetched(allowed, f"{allowed},127.0.0.1,127.0.0.2") == b"/"


def test_redirects_are_checked(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    here = f"http://127.0.0.1:{site.port}"
    allowed = f"{here}/redirect,{here}/photos/"
    assert fetched(f"{here}/redirect?/photos/x", allowed) == b"/photos/x"
    assert fetched(f"{here}/redirect?{here}/redirect?/photos/y", allowed) == b"/photos/y"
    before = len(site.heads)
    for target in (
        f"{here}/private",
        "/photos/../private",
        "http://169.254.169.254/x",
        "file:///etc/passwd",
        "",
    ):
        code = refused(f"{here}/redirect?{target}", allowed)[1]
        assert code == ("url_not_allowed" if target else "url_failed")
    assert all(path.startswith("/redirect") for path, _ in site.heads[before:])
    loop = f"{here}/redirect?/redirect?/redirect?/redirect?/photos/x"
    assert refused(loop, allowed)[2].endswith("gave more than 3 redirects")


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("/status?404", "gave the status 404"),
        ("/status?500", "gave the status 500"),
        ("/status?204", "gave the status 204"),
        ("/gzip", "gave a compressed answer"),
    ],
)
def test_other_answers(site: Site, path: str, what: str) -> None:
    here = f"http://127.0.0.1:{site.port}/"
    status, code, message = refused(here[:-1] + path, here)
    assert (status, code) == (502, "url_failed")
    assert message.endswith(what)


def test_sizes_are_bounded(site: Site) -> None:
    here = f"http://127.0.0.1:{site.port}"
    assert len(fetched(f"{here}/bytes?1000", here, most=1000)) == 1000
    for path, used in (("/bytes?1001", 0), ("/bytes?901", 100), ("/endless", 0)):
        status, code, message = refused(f"{here}{path}", here, most=1000, used=used)
        assert (status, code) == (413, "body_too_large")
        assert message == "a request and its images must have at most 1000 bytes together, got more"


@pytest.mark.parametrize("path", ["/drip", "/stuck"])
def test_times_are_bounded(site: Site, path: str) -> None:
    here = f"http://127.0.0.1:{site.port}"
    begin = time.monotonic()
    status, code, message = refused(f"{here}{path}", here, timeout=0.3)
    assert time.monotonic() - begin < 20
    assert (status, code) == (502, "url_failed")
    assert message.endswith("gave no whole answer within 0.3 seconds")


def test_a_server_that_says_nothing_or_nonsense() -> None:
    for answer in (None, b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx", b""):
        with socket.create_server(("127.0.0.1", 0)) as server:

            def serve(server: socket.socket = server, answer: bytes | None = answer) -> None:
                connection, _ = server.accept()
                with connection:
                    connection.recv(4096)
                    if answer is None:
                        time.sleep(1)
                    else:
                        connection.sendall(answer)

            thread = threading.Thread(target=serve)
            thread.start()
            here = f"http://127.0.0.1:{server.getsockname()[1]}"
            assert refused(f"{here}/", here, timeout=0.3 if answer is None else 20)[:2] == (502, "url_failed")
            thread.join(60)


def test_nobody_listens_and_no_such_host(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    here = f"http://127.0.0.1:{port}/"
    assert refused(here, here)[1] == "url_failed"

    async def resolve(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(url_fetch, "resolve", resolve)
    assert "its host has no address" in refused("https://photos.example/", "photos.example")[2]


def test_resolving_gives_each_address_once() -> None:
    assert asyncio.run(url_fetch.resolve("127.0.0.1", 80)) == ["127.0.0.1"]


def test_certificates_are_those_of_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the name in the URL, though the connection is made to an address."""
    certificate, key = write_certificate(tmp_path, "photos.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    site = Site(context)
    try:
        for host, good in (("photos.example", True), ("other.example", False)):
            names(monkeypatch, ["127.0.0.1"])
            allowed = f"https://{host}:{site.port}/,127.0.0.1"
            if good:
                assert fetched(f"https://{host}:{site.port}/x", allowed) == b"/x"
            else:
                assert "CERTIFICATE_VERIFY_FAILED" in refused(f"https://{host}:{site.port}/x", allowed)[2]
    finally:
        site.close()
    assert site.heads == [("/x", f"photos.example:{site.port}")]


def test_images_by_url(start: Callable[..., Any], png: bytes, site: Site) -> None:
    """Through the whole service: an image, what is none, and what is not allowed."""
    site.files = {"/a.png": png, "/b.png": b"hello"}
    here = f"http://127.0.0.1:{site.port}"
    client = start(url_allow=here, max_body_bytes=3 * len(png)).client
    paths = ["/a.png", "/b.png", "/a.png"]
    urls = [{"url": f"{here}{path}"} for path in paths] + [{"url": "https://example.com/x.png"}]
    answer = client.post("/v1/detect", json={"images": urls})
    assert answer.status_code == 200
    first, second, third, fourth = answer.json()["images"]
    assert (first["width"], first["height"]) == (200, 120)
    assert first == third
    assert second["error"]["code"] == "undecodable_image"
    assert fourth["error"]["code"] == "url_not_allowed"
    answer = client.post("/v1/detect", json={"images": [{"url": f"{here}/a.png"}] * 4}).json()["images"]
    codes = [one["error"]["code"] if "error" in one else "good" for one in answer]
    assert set(codes) <= {"good", "body_too_large"}
    assert 0 <= codes.count("good") <= 2
    # A deadline holds while images are fetched.
    late_url = [{"url": f"{here}/stuck"}]
    late = client.post("/v1/detect", json={"images": late_url}, headers={"X-Request-Timeout-Ms": "200"})
    assert late.status_code == 504
