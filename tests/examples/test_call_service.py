"""examples/call_service.py: what it says of answers and errors. The quick start's test asks Lensbox."""

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from programs import load_example

FOUND = b"""{"box": [1, 2, 3.25, 4], "score": 0.75, "label": "red"}"""
ANSWER = b"""{"width": 320, "height": 200, "detections": [%s]}""" % FOUND
PROBLEM = b"""{"code": "undecodable_image", "detail": "the image must be one of JPEG"}"""


class Service(BaseHTTPRequestHandler):
    """Takes the bytes `photo` for a photograph and nothing else."""

    def do_POST(self) -> None:
        good = self.rfile.read(int(self.headers["Content-Length"])) == b"photo" and self.path == "/v1/detect"
        answer = ANSWER if good else PROBLEM
        self.send_response(200 if good else 400)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_answers_and_errors_are_told_photo_by_photo(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    photos = {tmp_path / "a.jpg": b"photo", tmp_path / "b.jpg": b"text", tmp_path / "c.jpg": b"photo"}
    for path, content in photos.items():
        path.write_bytes(content)
    good, bad, _ = photos
    missing = tmp_path / "missing.jpg"
    program = load_example("call_service.py", monkeypatch, *photos, missing, "--url", url)
    assert asyncio.run(program["main"]()) == 1
    printed = capsys.readouterr()
    assert printed.out.splitlines()[:2] == [
        f"{good}, 320 x 200 pixels",
        "  red 0.750, x 1.0 to 3.2, y 2.0 to 4.0",
    ]
    assert printed.out.count("red") == 2
    first, second = printed.err.splitlines()
    assert first == f"{bad}: undecodable_image: the image must be one of JPEG"
    assert second.startswith(f"{missing}: ")
    assert "No such file" in second


def test_a_service_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    photo = tmp_path / "a.jpg"
    photo.write_bytes(b"photo")
    program = load_example("call_service.py", monkeypatch, photo, "--url", "http://127.0.0.1:1")
    assert asyncio.run(program["main"]()) == 1
    assert f"{photo}: no service at http://127.0.0.1:1" in capsys.readouterr().err
