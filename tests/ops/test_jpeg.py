"""Which JPEG files a GPU may decode, and the walk of their codes on the CPU."""

import random

import pytest
from damaged_files import mutated
from exif_files import exif, jpeg_with_exif
from jpeg_files import (
    BASELINE,
    LARGE,
    LONG_CODES,
    RESTARTED,
    SMALL,
    TALL,
    begin_of_data,
    encode,
    is_accepted,
    is_sound,
    with_byte,
    with_flipped_bit,
)


def test_sound_files_are_accepted() -> None:
    files = [
        *SMALL,
        *LARGE,
        *(encode(101, 67, quality=quality, optimize=True) for quality in (3, 75, 95)),
        TALL,
        BASELINE + b"behind the end",
        jpeg_with_exif(BASELINE, exif(6)),
    ]
    for file in files:
        assert is_accepted(file)
        assert is_sound(file)


@pytest.mark.parametrize(
    "file",
    [
        b"\xff",
        encode(101, 67, progressive=True),
        encode(101, 67, "CMYK"),
        encode(101, 67, keep_rgb=True),  # with Adobe's marker
        BASELINE[:-2],
        BASELINE[:-300],
        BASELINE[: begin_of_data(BASELINE)],
        BASELINE.replace(b"\xff\xc0", b"\xff\xc1"),
        RESTARTED.replace(b"\xff\xd1", b"\xff\xd2", 1),
        RESTARTED.replace(b"\xff\xd1", b"", 1),
        BASELINE[:-2] + b"\xff\xd0\xff\xd9",
        with_byte(BASELINE, BASELINE.index(b"\xff\xc0") + 11, 0x41),  # luma four times as wide as chroma
        LONG_CODES,
        with_byte(BASELINE, BASELINE.index(b"\xff\xc0") + 5, 16),  # more blocks than its data can hold
    ],
)
def test_other_kinds_and_broken_structure_are_refused(file: bytes) -> None:
    assert not is_accepted(file)


def test_broken_codes_are_found() -> None:
    begin = begin_of_data(BASELINE) + 50
    for broken in (
        BASELINE[:begin] + BASELINE[begin + 10 :],  # missing
        BASELINE[:begin] + b"\x55" * 10 + BASELINE[begin:],  # left over
        BASELINE[:begin] + b"\xff\0" * 20 + BASELINE[begin + 40 :],  # a code is never all ones
    ):
        assert is_accepted(broken)
        assert not is_sound(broken)


@pytest.mark.parametrize("seed", range(60))
def test_damaged_files_that_pass_are_sound_to_libjpeg(seed: int) -> None:
    simplejpeg = pytest.importorskip("simplejpeg")
    chance = random.Random(seed)
    for _ in range(10):
        damaged = mutated(chance.choice(SMALL), chance)
        if damaged and is_sound(damaged):
            try:
                simplejpeg.decode_jpeg(damaged, "GRAY", strict=True)  # raises what libjpeg would warn of
            except ValueError as error:
                assert "unknown JFIF revision" in str(error)  # noqa: PT017 (it does not change pixels)


def test_walks_in_parts_find_damage() -> None:
    chance = random.Random(28)
    found = [is_sound(with_flipped_bit(chance.choice(LARGE), chance)) for _ in range(100)]
    assert set(found) == {True, False}
