"""Files made to keep a decoder busy, and the process that measures them."""

import io
import operator
from functools import partial

import PIL.Image
import pytest

from lensbox.artifact.metadata import Canvas, Reading
from lensbox.bench.photo.hostile import jpeg_files, png_files
from lensbox.bench.photo.hostile.budget import MOST_BYTES
from lensbox.bench.photo.hostile.decode_time import LARGEST_SIDE, Decoder, DecodeTime, measure
from lensbox.bench.photo.hostile.files import HOSTILE_FILES, HostileFile
from lensbox.bench.photo.hostile.service_decoder import decode
from lensbox.common.errors import InputError
from lensbox.runtime.jpeg_structure import allowed_scans, check_jpeg
from lensbox.serve.settings import Settings

_decode = partial(decode, Canvas(256, 256), Reading())


@pytest.mark.parametrize("hostile", HOSTILE_FILES, ids=lambda hostile: hostile.name)
def test_every_file_is_taken_or_refused_as_meant(hostile: HostileFile) -> None:
    file = hostile.make(100)
    assert len(file) <= MOST_BYTES
    seconds, outcome = _decode(file)
    assert outcome.partition(":")[0] == hostile.meant
    assert seconds >= 0


def test_the_set_is_complete() -> None:
    names = [hostile.name for hostile in HOSTILE_FILES]
    assert len(names) == len(set(names))
    for part in (
        *("progressive JPEG, gray, most scans", "progressive JPEG, CMYK, most scans", "segments"),
        *("restart markers", "PNG bomb, 8 bits", "PNG bomb, 16 bits, interlaced", "chunks of data"),
        *("metadata", "GIF", "WebP, lossless", "WebP, lossy", "run-length", "on its side"),
    ):
        assert any(part in name for name in names), part
    assert {hostile.meant for hostile in HOSTILE_FILES} == {"decoded", "refused"}


def test_the_largest_image_is_just_within_the_pixels_of_the_service() -> None:
    assert LARGEST_SIDE**2 <= Settings.max_pixels < (LARGEST_SIDE + 1) ** 2


@pytest.mark.parametrize(("width", "height"), [(7000, 7000), (LARGEST_SIDE, LARGEST_SIDE), (1920, 1080)])
def test_no_more_scans_than_the_most_are_allowed(width: int, height: int) -> None:
    most = allowed_scans(width, height)
    scan = b"\xff\xda\0\x08\1\1\0\0\0\0"
    start = b"\xff\xd8\xff\xc2\0\x0b\x08\0\1\0\1\1\1\x11\0"
    check_jpeg(start + scan * most, width, height)
    with pytest.raises(InputError, match="too many scans"):
        check_jpeg(start + scan * (most + 1), width, height)


@pytest.mark.parametrize("components", [1, 3, 4])
def test_the_files_of_many_scans_have_them(components: int) -> None:
    side = 2000
    file = jpeg_files.many_scans(side, components)
    assert file.count(b"\xff\xda") == allowed_scans(side, side) == 268
    with PIL.Image.open(io.BytesIO(file)) as image:
        assert image.mode == {1: "L", 3: "RGB", 4: "CMYK"}[components]
        assert image.size == (side, side)
        assert "progressive" in image.info
        image.load()


@pytest.mark.parametrize(("bits", "side"), [(8, 42), (16, 30)])
def test_a_bomb_is_no_larger_than_is_allowed(bits: int, side: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(png_files, "MAX_PNG_BYTES", 8 * 30 * 30)
    with PIL.Image.open(io.BytesIO(png_files.bomb(50, bits))) as image:
        assert image.size == (side, side)
        image.load()


def test_bombs_inflate_to_noise() -> None:
    with PIL.Image.open(io.BytesIO(png_files.bomb(64, 8))) as image:
        assert len(set(image.tobytes())) > 200


def test_a_decoder_that_hangs_or_dies_is_replaced() -> None:
    # `eval` stands for a decoder, as another process must be able to import it.
    with Decoder(eval, patience=2) as decoder:
        assert decoder(b"(0.5, 'decoded')") == (0.5, "decoded")
        assert decoder(b"__import__('time').sleep(600)") is None
        assert decoder(b"__import__('os')._exit(1)") is None
        assert decoder(b"(1.5, 'refused')") == (1.5, "refused")


class _Answers(Decoder):
    """Gives these, one after another, without a process."""

    def __init__(self, *answers: tuple[float, str] | None) -> None:
        self._answers = iter(answers)

    def __call__(self, file: bytes) -> tuple[float, str] | None:
        return next(self._answers)


def test_the_median_of_the_decodings_counts() -> None:
    files = [HostileFile("one", bytes), HostileFile("other", operator.methodcaller("to_bytes", 3, "big"))]
    answers = _Answers((1.0, "decoded"), (9.0, "decoded"), (2.0, "decoded"), (0.1, "refused: 400"), None)
    assert list(measure(files, 5, 3, answers)) == [
        DecodeTime("one", 5, 2.0, "decoded"),
        DecodeTime("other", 3, None, "no answer"),
    ]
