"""The one number that is read from EXIF data."""

import struct

import pytest
from damaged_files import with_bit_flipped
from exif_files import ORIENTATION, SHORT, broken_exif, entry, exif, odd_exif, tiff

from lensbox.runtime.images.orientation import exif_orientation


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_orientation_in_both_byte_orders(orientation: int, order: str) -> None:
    assert exif_orientation(exif(orientation, order)) == orientation


@pytest.mark.parametrize("data", broken_exif().values(), ids=broken_exif())
def test_what_is_broken_tells_nothing(data: bytes) -> None:
    assert exif_orientation(data) == 1


@pytest.mark.parametrize("data", odd_exif().values(), ids=odd_exif())
def test_what_is_odd_but_clear_is_read(data: bytes) -> None:
    assert exif_orientation(data) == 6


def test_no_truncation_and_no_flipped_bit_raises() -> None:
    data = tiff("<", entry("<", ORIENTATION, SHORT, 1, 6))
    for length in range(len(data)):
        assert exif_orientation(data[:length]) == (6 if length >= 22 else 1)
    for position in range(len(data)):
        for bit in range(8):
            assert 1 <= exif_orientation(with_bit_flipped(data, position, bit)) <= 8


def test_a_directory_that_is_the_header() -> None:
    """Its count is then 0x4949 entries, and they end at the end of the data."""
    assert exif_orientation(b"II*\0" + struct.pack("<I", 0) + bytes(100)) == 1
