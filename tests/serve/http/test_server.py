"""Accepting connections: after a lack of file descriptors, and at the end."""

import errno
import os
import socket
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvloop
from certificates import write_certificate
from fastapi import FastAPI
from services import Start, connect
from waiting import PATIENCE

from lensbox.serve.cli import listen
from lensbox.serve.http import server
from lensbox.serve.settings import Settings

_SETTINGS = Settings(artifact=Path("detector.pt"))


class Exhausted(socket.socket):
    """A listening socket: the first `accept` finds no file descriptor, the second a client that is gone."""

    calls = 0

    def accept(self) -> Any:
        self.calls += 1
        if self.calls == 1:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        if self.calls == 2:
            raise ConnectionAbortedError
        return super().accept()


def test_accepts_again_after_a_lack_of_file_descriptors(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "_PAUSE", 0.01)
    bound = listen("127.0.0.1", 0)
    listener = Exhausted(bound.family, bound.type, bound.proto, bound.detach())
    listener.setblocking(False)
    url = _SETTINGS.url_of(listener)
    running = server.Server(FastAPI(), _SETTINGS)
    thread = threading.Thread(target=lambda: uvloop.run(running.serve(listener)))
    thread.start()
    try:
        assert httpx.get(f"{url}/openapi.json", timeout=PATIENCE).status_code == 200
    finally:
        running.should_exit = True
        thread.join(PATIENCE)
    assert listener.calls > 2
    messages = [record.message for record in caplog.records if "cannot accept" in record.message]
    assert messages == ["cannot accept connections: [Errno 24] Too many open files"]
    assert listener.fileno() == -1  # closed


def test_serves_https(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_certificate(tmp_path / "own.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    client = start(tls_certificate=path, tls_key=path).client
    assert client.base_url.scheme == "https"
    with connect(client.base_url):  # a silent one holds nobody up
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(f"http://127.0.0.1:{client.base_url.port}/livez", timeout=PATIENCE)
        assert client.post("/v1/loss", json={"predictions": [], "targets": []}).status_code == 200


def test_answers_connections_that_wait_at_the_end() -> None:
    listener = listen("127.0.0.1", 0)
    listener.setblocking(False)
    clients = [connect(_SETTINGS.url_of(listener)) for _ in range(3)]
    for client in clients[1:]:  # the first one is silent
        client.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n")
    running = server.Server(FastAPI(), _SETTINGS)
    running.should_exit = True
    uvloop.run(running.serve(listener))
    for client, answer in zip(clients, (b"", b"HTTP/1.1 200", b"HTTP/1.1 200"), strict=True):
        with client:
            assert client.recv(12) == answer
