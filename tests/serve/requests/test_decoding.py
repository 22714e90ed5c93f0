"""Decoding of image files, and its threads: limits, stuck images, deadlines."""

import contextlib
import math
import random
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from damaged_files import mutated
from picture_files import png_file, wide_files
from services import Encode, Start, problem_of
from waiting import PATIENCE, wait_until

from lensbox.common.canvas import Canvas
from lensbox.runtime.images.files import DEFAULT_READING, read_image
from lensbox.runtime.images.photo import Photo
from lensbox.serve.errors import ApiError, DeadlineError
from lensbox.serve.requests import decoding
from lensbox.serve.requests.decoding import photo_from_file

_PLENTY = 1_000_000


def _decoded(file: bytes, max_pixels: int = _PLENTY, deadline: float = math.inf) -> torch.Tensor:
    return photo_from_file(file, None, DEFAULT_READING, max_pixels, deadline).pixels


def _run_length_bmp(width: int, height: int, runs: bytes) -> bytes:
    """Return a BMP file with 256 colors. runs: pairs of count and color; escapes begin with 0."""
    palette = b"".join(struct.pack("<I", 0x010305 * color) for color in range(256))
    begin = 14 + 40 + len(palette)
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, 1, len(runs), 0, 0, 256, 0)
    return b"BM" + struct.pack("<IHHI", begin + len(runs), 0, 0, begin) + header + palette + runs


def _rejection(file: bytes, max_pixels: int = _PLENTY) -> tuple[str, str]:
    """Return code and message of the error."""
    with pytest.raises(ApiError) as caught:
        _decoded(file, max_pixels)
    assert caught.value.status == (413 if caught.value.code == "too_many_pixels" else 400)
    return caught.value.code, caught.value.message


@pytest.mark.parametrize("format_name", ["PNG", "BMP", "WEBP", "JPEG", "GIF"])
def test_files_of_every_format_and_their_truncations(format_name: str, encode: Encode) -> None:
    file = encode(format_name)
    assert _decoded(file, 24_000).equal(read_image(file))
    message = "the image must have at most 23999 pixels, got 200 x 120 = 24000"
    assert _rejection(file, 23_999) == ("too_many_pixels", message)
    for length in [4, 12, 20, 30, len(file) // 2]:
        assert _rejection(file[:length])[0] == "undecodable_image"


@pytest.mark.parametrize("kind", ["PNG", "BMP run-length", "WEBP", "JPEG", "GIF"])
def test_random_damage_gives_a_photograph_or_an_api_error(kind: str, encode: Encode) -> None:
    """The small canvas makes JPEG files decode at reduced size; EXIF data turns the other formats."""
    is_turned = kind in ("PNG", "WEBP", "JPEG")
    if kind == "BMP run-length":
        file = _run_length_bmp(200, 120, b"\x05\x07\xc3\x01\0\0" * 120)
    else:
        file = encode(kind, orientation=7 if is_turned else None)
    canvas, chance = Canvas(16, 16), random.Random(kind)
    photo = photo_from_file(file, canvas, DEFAULT_READING, _PLENTY)
    assert (photo.width, photo.height) == ((120, 200) if is_turned else (200, 120))
    assert photo.is_whole is (kind != "JPEG")
    for _ in range(100):
        with contextlib.suppress(ApiError):
            photo = photo_from_file(mutated(file, chance), canvas, DEFAULT_READING, _PLENTY)
            x1, y1, x2, y2 = photo.window
            assert photo.width * photo.height <= _PLENTY
            assert -8 < x1 <= 0 < photo.width <= x2 < photo.width + 8
            assert -8 < y1 <= 0 < photo.height <= y2 < photo.height + 8


def test_limits_pixels_and_runs_of_run_length_bmp() -> None:
    """Pillow's decoder takes a microsecond per run, whatever the number of pixels."""
    assert _decoded(_run_length_bmp(1 << 16, 1, b"\x01\x05\0\0")).shape[2] == 1 << 16
    code, message = _rejection(_run_length_bmp(50_000_000, 1, b"\x01\x05\0\0"), 50_000_000)
    assert code == "too_many_pixels"
    assert "a run-length BMP image must have at most 2097152 pixels" in message
    code, message = _rejection(_run_length_bmp(1200, 1200, b"\x01\x05" * 1200 * 1200), 1200 * 1200)
    assert code == "undecodable_image"
    assert "it must be readable in at most 1148576 pieces" in message


@pytest.mark.parametrize("kind", ["PNG", "BMP"])
def test_limits_the_longest_side(kind: str) -> None:
    rule = "the image must have sides of at most 16777216 pixels, got 17000000 x 1"
    assert _rejection(wide_files(17_000_000)[kind], 50_400_000) == ("too_many_pixels", rule)


@pytest.mark.parametrize(("color_type", "bits", "width"), [(2, 8, 10_667), (6, 16, 4001)])
def test_a_png_inflates_to_a_bounded_size(color_type: int, bits: int, width: int) -> None:
    """Refuse a large PNG by its header. A PNG with one column less fails later, for its missing pixels."""
    code, text = _rejection(png_file(width, 3750, color_type, b"", bits=bits), 60_000_000)
    assert code == "too_many_pixels"
    assert f"at most 120000000 bytes of pixels, got {width} x 3750" in text
    smaller = png_file(width - 1, 3750, color_type, b"", bits=bits)
    assert _rejection(smaller, 60_000_000)[0] == "undecodable_image"


def test_gives_up_at_the_deadline(png: bytes) -> None:
    with pytest.raises(DeadlineError, match="the image was not decoded in time; try again later"):
        _decoded(png, deadline=-math.inf)


# --- threads ---


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
    client = start(decode_threads=1, answer_timeout=0.5).client
    response = client.post("/v1/detect", content=b"first")
    assert problem_of(response)[:2] == (504, "deadline_exceeded")
    loss: dict[str, list[Any]] = {"predictions": [], "targets": []}
    # A loss does not wait for decoders. A slow machine may miss the short limit: ask again.
    wait_until(lambda: client.post("/v1/loss", json=loss).status_code == 200)
    wait_until(lambda: client.get("/readyz").status_code == 503)
    for response in (client.get("/readyz"), client.post("/v1/detect", content=b"second")):
        message = "all decoding threads are stuck in images that take too long"
        assert problem_of(response) == (503, "not_ready", message)
    assert client.get("/healthz").status_code == 200
    stuck.gate.set()
    wait_until(lambda: client.get("/readyz").status_code == 200)
    wait_until(lambda: client.post("/v1/detect", content=b"third").status_code == 200)
    assert (stuck.bodies[0], set(stuck.bodies[1:])) == (b"first", {b"third"})
    assert all(map(math.isfinite, stuck.deadlines))  # each decoder gives up at a deadline
