"""Decoding threads: stuck images, deadlines, and decoding in the caller's thread."""

import math
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import httpx
import pytest
import torch
from services import Encode, Start, problem_of
from waiting import PATIENCE, wait_until

from lensbox.runtime.images.files import DEFAULT_READING
from lensbox.runtime.images.photo import Photo
from lensbox.serve.errors import ApiError
from lensbox.serve.requests import decoding
from lensbox.serve.requests.decoding import Decoders
from lensbox.serve.requests.image_file import photo_from_file

_LOSS = {"predictions": [[0, 0, 1, 1]], "targets": [[0, 0, 1, 1]]}


class StuckDecoder:
    """A stand-in for `photo_from_file` that blocks while `gate` is closed."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.bodies: list[bytes] = []
        self.deadlines: list[float] = []

    def __call__(self, body: bytes, canvas: Any, reading: Any, max_pixels: int, deadline: float) -> Photo:
        self.bodies.append(body)
        self.deadlines.append(deadline)
        assert self.gate.wait(PATIENCE)
        return Photo.of(torch.zeros(3, 4, 5, dtype=torch.uint8))


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[StuckDecoder]:
    stuck = StuckDecoder()
    monkeypatch.setattr(decoding, "photo_from_file", stuck)
    yield stuck
    stuck.gate.set()


def test_not_ready_while_all_decoders_are_stuck(start: Start, stuck: StuckDecoder) -> None:
    running = start(decode_threads=1, answer_timeout=0.5)
    client: httpx.Client = running.client
    response = client.post("/v1/detect", content=b"first")
    assert response.status_code == 504
    assert problem_of(response)["code"] == "deadline_exceeded"
    assert client.post("/v1/loss", json=_LOSS).status_code == 200  # a loss does not wait for decoders
    wait_until(lambda: client.get("/readyz").status_code == 503)
    for response in (client.get("/readyz"), client.post("/v1/detect", content=b"second")):
        assert response.status_code == 503
        assert problem_of(response) == {
            "code": "not_ready",
            "message": "all decoding threads are stuck in images that take too long",
        }
    assert client.get("/healthz").status_code == 200
    stuck.gate.set()
    wait_until(lambda: client.get("/readyz").status_code == 200)
    assert client.post("/v1/detect", content=b"third").status_code == 200
    assert stuck.bodies == [b"first", b"third"]
    assert all(map(math.isfinite, stuck.deadlines))  # each decoder gives up at a deadline


def _passed(photo: Photo) -> "Future[Photo]":
    """Return the photograph as the next step does its result."""
    future: Future[Photo] = Future()
    future.set_result(photo)
    return future


@pytest.mark.parametrize(("time_limit", "is_stuck"), [(0.01, True), (PATIENCE, False)])
def test_stuck_once_all_decoders_are(
    stuck: StuckDecoder, encode: Encode, time_limit: float, is_stuck: bool
) -> None:
    """A client's deadline does not count, but the time limit."""
    decoders = Decoders(threads=2, max_pixels=10_000_000, time_limit=time_limit)
    first = decoders.submit(b"first", None, DEFAULT_READING, 0.0, _passed)
    wait_until(lambda: stuck.bodies == [b"first"])
    assert not decoders.stuck
    # Not in this thread, although the file is quick to decode: the pool is busy.
    second = decoders.submit(encode("JPEG"), None, DEFAULT_READING, math.inf, _passed, is_alone=True)
    wait_until(lambda: len(stuck.bodies) == 2 and decoders.stuck is is_stuck)
    stuck.gate.set()
    photos = [future.result(60).result(60) for future in (first, second)]
    assert [photo.pixels.shape for photo in photos] == [(3, 4, 5)] * 2
    assert not decoders.stuck
    decoders.stop()


def test_decodes_quick_files_in_the_callers_thread(encode: Encode, monkeypatch: pytest.MonkeyPatch) -> None:
    decode, threads = photo_from_file, set()

    def noted(*arguments: Any) -> Photo:
        threads.add(threading.get_ident())
        return decode(*arguments)

    monkeypatch.setattr(decoding, "photo_from_file", noted)
    decoders = Decoders(threads=1, max_pixels=10_000_000, time_limit=PATIENCE)

    def is_decoded_here(file: bytes, is_alone: bool) -> bool:
        threads.clear()
        decoders.submit(file, None, DEFAULT_READING, math.inf, _passed, is_alone).result(PATIENCE)
        return threads == {threading.get_ident()}

    small = encode("JPEG")
    assert is_decoded_here(small, is_alone=True)
    assert not is_decoded_here(small, is_alone=False)
    for slow in (
        encode("PNG"),
        encode("JPEG", progressive=True),
        encode("JPEG", size=(1024, 1024)),
        small + bytes(1 << 18),
    ):
        assert not is_decoded_here(slow, is_alone=True)
    with pytest.raises(ApiError):
        decoders.submit(small[: len(small) // 2], None, DEFAULT_READING, math.inf, _passed, is_alone=True)
    decoders.stop()
