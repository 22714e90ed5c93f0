"""JPEG files decoded without Python's lock: the pixels equal Pillow's, or Pillow decodes them."""

import importlib
import itertools
import random
import sys
import time
from collections.abc import Iterator
from typing import Any

import PIL.Image
import pytest
from damaged_files import mutated
from picture_files import encoded, jpeg_segment, noise

from lensbox.common.errors import InputError
from lensbox.runtime import Canvas, Photo, Reading
from lensbox.runtime.images import decoder, fast_jpeg
from lensbox.runtime.images.decoder import decode_photo
from lensbox.runtime.images.fast_jpeg import decode_usual_jpeg
from lensbox.runtime.images.jpeg import usual_header
from lensbox.runtime.images.limits import NO_LIMITS, ImageLimits

GRAY, COLOR = Canvas(32, 32, 1), Canvas(32, 32, 3)
CANVASES = [GRAY, COLOR, Canvas(100, 90, 1), Canvas(100, 90, 3), None]
EXIF = Reading()
END = b"\xff\xd9"

Result = tuple[Any, ...]


def _sound_files() -> Iterator[bytes]:
    for (width, height), progressive in itertools.product(((16, 16), (101, 67), (300, 233)), (False, True)):
        picture = noise("RGB", width, height)
        yield encoded(picture.convert("L"), progressive=progressive)
        yield encoded(picture, progressive=progressive, keep_rgb=True)  # with Adobe's marker: no transform
        for sampling in ("4:4:4", "4:2:2", "4:2:0"):
            yield encoded(picture, progressive=progressive, subsampling=sampling, quality=90)
            yield encoded(
                picture, progressive=progressive, subsampling=sampling, optimize=True, restart_marker_blocks=3
            )


SOUND = list(_sound_files())
BASELINE = encoded(noise("RGB", 101, 67))
PROGRESSIVE = encoded(noise("RGB", 101, 67), progressive=True)


def _result(photo: Photo) -> Result:
    pixels = photo.pixels
    return pixels.numpy().tobytes(), pixels.shape, pixels.stride(), photo.width, photo.height, photo.window


def _by_pillow(file: bytes, canvas: Canvas | None, reading: Reading = EXIF) -> Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoder, "decode_usual_jpeg", lambda *_: None)
        return _by_either(file, canvas, reading)


def _by_either(file: bytes, canvas: Canvas | None, reading: Reading = EXIF) -> Result:
    """Return the photograph, or the error."""
    try:
        return _result(decode_photo(file, canvas, reading))
    except InputError as error:
        return type(error), str(error)


@pytest.mark.parametrize("canvas", CANVASES)
@pytest.mark.parametrize("oversampling", [0, 1, 2])
def test_pixels_equal_pillow_s(canvas: Canvas | None, oversampling: int) -> None:
    reading = Reading(jpeg_oversampling=oversampling)
    for file in SOUND:
        photo = decode_usual_jpeg(file, canvas, reading, NO_LIMITS)
        assert photo is not None
        assert _result(photo) == _by_pillow(file, canvas, reading)


def test_any_end_of_a_file_gives_pillow_s_result() -> None:
    ends = [b"", END[:1], END + b"garbage", END + END]
    before_end = [b"\0\0", b"\xff", b"\xff\xd0", b"\xff\xfe\0\5abc", b"\xff\xfe\xff\xffabc"]
    before_end += [b"\xff\xda\0\x08\1\1\0\0\x3f\0"]
    ends += [content + END for content in before_end]
    for file, end, canvas in itertools.product((BASELINE, PROGRESSIVE), ends, (GRAY, None)):
        changed = file.removesuffix(END) + end
        assert _by_either(changed, canvas) == _by_pillow(changed, canvas), end


def test_damaged_files_give_pillow_s_result() -> None:
    chance = random.Random(0)
    for turn in range(400):
        damaged, canvas = mutated(chance.choice(SOUND), chance), chance.choice((GRAY, COLOR, None))
        assert _by_either(damaged, canvas) == _by_pillow(damaged, canvas), turn


def _frame() -> bytes:
    begin = BASELINE.index(b"\xff\xc0")
    return BASELINE[begin : begin + 19]


def _with_frame(begin: int, content: bytes) -> bytes:
    """Return the baseline file with some bytes of its frame changed."""
    frame = _frame()
    return BASELINE.replace(frame, frame[:begin] + content + frame[begin + len(content) :])


def _after_start(content: bytes) -> bytes:
    return BASELINE[:2] + content + BASELINE[2:]


UNUSUAL = {
    "inks": encoded(noise("CMYK", 101, 67)),
    "arithmetic": _with_frame(1, b"\xc9"),
    "lossless": _with_frame(1, b"\xc3"),
    "12 bits": _with_frame(4, b"\x0c"),
    "bytes between segments": _after_start(b"\xff\xfe\0\4ab123"),
    "filled up": _after_start(b"\xff"),
    "a marker alone": _after_start(b"\xff\x01"),
    "number of lines": _after_start(b"\xff\xdc\0\4\0\x43"),
    "short JFIF": _after_start(jpeg_segment(0xE0, b"JFIF\0")),
    "short Adobe": _after_start(jpeg_segment(0xEE, b"Adobe")),
    "no length": _after_start(b"\xff\xfe\0\0"),
    "two frames": BASELINE.replace(_frame(), 2 * _frame()),
    "hundreds of segments": _after_start(jpeg_segment(0xFE, b"") * 300),
    "two components": _with_frame(9, b"\2"),
    "no pixels": _with_frame(5, b"\0\0\0\0"),
    "no lines": _with_frame(5, b"\0\0"),
    "no columns": _with_frame(7, b"\0\0"),
    "frame too long": _with_frame(3, b"\x14"),
    "no scan": BASELINE[: BASELINE.index(b"\xff\xda")],
    "PNG": b"\x89PNG\r\n\x1a\n",
    "nothing": b"",
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_leaves_unusual_files_to_pillow(name: str) -> None:
    assert usual_header(UNUSUAL[name]) is None
    assert _by_either(UNUSUAL[name], GRAY) == _by_pillow(UNUSUAL[name], GRAY)


@pytest.mark.parametrize("side", [1, 7, 8, 15])
def test_leaves_tiny_pictures_to_pillow(side: int) -> None:
    """simplejpeg would take the scale 7/8, at which 7 pixels are still 7."""
    for size in ((side, 40), (40, side), (side, side)):
        file = encoded(noise("RGB", *size))
        assert decode_usual_jpeg(file, None, EXIF, NO_LIMITS) is None
        assert _by_either(file, None) == _by_pillow(file, None)


def _is_decoded(file: bytes, limits: ImageLimits = NO_LIMITS) -> bool:
    return decode_usual_jpeg(file, GRAY, EXIF, limits) is not None


def test_leaves_files_beyond_limits_to_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()  # BASELINE has 101 x 67 pixels
    assert _is_decoded(BASELINE, ImageLimits(max_pixels=6767, deadline=now + 60))
    for limit in ({"max_pixels": 6766}, {"max_pixels": 0}, {"deadline": now - 1}):
        assert not _is_decoded(BASELINE, ImageLimits(**limit))
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 6766)
    assert not _is_decoded(BASELINE)
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", None)
    assert _is_decoded(BASELINE)


def test_leaves_slow_files_to_pillow() -> None:
    """Pillow can stop at a deadline."""
    flat = PIL.Image.new("L", (4096, 4096))
    progressive = encoded(flat, progressive=True)  # 262,144 blocks
    last = progressive[progressive.rindex(b"\xff\xda") : -len(END)]
    scans = progressive.count(b"\xff\xda")
    assert not _is_decoded(encoded(PIL.Image.new("L", (4097, 4096))))
    assert not _is_decoded(progressive[: -len(END)] + last * (17 - scans) + END)
    # The number of scans of a baseline file is known without counting.
    for file in (encoded(flat), progressive, encoded(flat) + b"\xff\xda" * 17):
        assert _is_decoded(file)


def test_without_simplejpeg_pillow_decodes_all(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [_by_either(file, GRAY) for file in SOUND]
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "simplejpeg", None)
        importlib.reload(fast_jpeg)
        try:
            assert decode_usual_jpeg(SOUND[0], GRAY, EXIF, NO_LIMITS) is None
            assert [_by_either(file, GRAY) for file in SOUND] == expected
        finally:
            without.undo()
            importlib.reload(fast_jpeg)
    assert decode_usual_jpeg(SOUND[0], GRAY, EXIF, NO_LIMITS) is not None
