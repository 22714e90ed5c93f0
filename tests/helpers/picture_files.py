"""Pictures with large structures, so that detectors find something in them; their files, sound and odd."""

import io
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import PIL.Image
import torch
from torch import Tensor

from lensbox.model.config import CANVAS_SIZE


def smooth_image(channels: int, height: int, width: int, seed: int = 0) -> Tensor:
    """Return a random image without hard edges, uint8 [channels, height, width]."""
    coarse = torch.rand(1, channels, 12, 12, generator=torch.Generator().manual_seed(seed))
    smooth = torch.nn.functional.interpolate(coarse, (height, width), mode="bilinear")[0]
    return (smooth * 255).to(torch.uint8)


def noise(mode: str, width: int = 90, height: int = 70) -> PIL.Image.Image:
    """A random image, the same in every run, with large structures so that it survives being made smaller."""
    generator = np.random.default_rng(7)
    coarse = PIL.Image.fromarray(generator.integers(0, 256, (9, 11, 4), dtype=np.uint8), "RGBA")
    picture = coarse.resize((width, height), PIL.Image.Resampling.BICUBIC)
    if mode == "I;16":
        return PIL.Image.fromarray(np.asarray(picture.convert("L")).astype(np.uint16) * 256 + 77)
    # Not RGBA to P, which quantises the alpha too.
    return picture.convert("RGB").convert(mode) if mode == "P" else picture.convert(mode)


def squares(scale: int = 1) -> Tensor:
    """Return a gray picture, uint8 [3, 96, 160], with a red square at (10, 20) and a blue one at (120, 60).

    The squares have sides of 12 pixels. scale: of everything.
    """
    picture = torch.full((3, 96, 160), 110, dtype=torch.uint8)
    for x, y, color in ((10, 20, (250, 10, 10)), (120, 60, (10, 10, 240))):
        picture[:, y : y + 12, x : x + 12] = torch.tensor(color, dtype=torch.uint8)[:, None, None]
    return picture.repeat_interleave(scale, 1).repeat_interleave(scale, 2)


def ellipse(box: Sequence[float], width: int = CANVAS_SIZE, height: int = CANVAS_SIZE) -> Tensor:
    """Return a white ellipse that stands for a face and fills the box, float32 [height, width]."""
    x, y = torch.arange(width) + 0.5, torch.arange(height) + 0.5
    x1, y1, x2, y2 = box
    across = ((x - (x1 + x2) / 2) / ((x2 - x1) / 2)) ** 2
    down = ((y - (y1 + y2) / 2) / ((y2 - y1) / 2)) ** 2
    return 255 * (across[None] + down[:, None] <= 1).float()


def bounds(mask: Tensor) -> Tensor:
    """Return the box around the pixels that are set, float32 [4]."""
    rows, columns = mask.any(1).nonzero(), mask.any(0).nonzero()
    return torch.cat([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]).float()


def encoded(image: PIL.Image.Image, file_format: str = "JPEG", **options: Any) -> bytes:
    """Return the file of an image. options: of Pillow's `save`."""
    buffer = io.BytesIO()
    image.save(buffer, file_format, **options)
    return buffer.getvalue()


def jpeg_segment(marker: int, content: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content


def flat_jpeg(width: int, height: int, scans: int) -> bytes:
    """Return a gray image of one value, progressive. Its later scans give zeros: slow, and of few bytes."""
    start_of_image, frame, huffman, scan, quantization = 0xD8, 0xC2, 0xC4, 0xDA, 0xDB
    blocks = -(-width // 8) * -(-height // 8)
    file = bytes([0xFF, start_of_image]) + jpeg_segment(quantization, bytes([0]) + bytes([1] * 64))
    file += jpeg_segment(frame, struct.pack(">BHHB", 8, height, width, 1) + bytes([1, 0x11, 0]))
    # The codes 0 and 10. 0 is for DC the value of the block before, for AC that 2^14 or more blocks are 0.
    one_bit_and_two = bytes([1, 1] + 14 * [0])
    file += jpeg_segment(huffman, bytes([0x00]) + one_bit_and_two + bytes([0, 1]))
    file += jpeg_segment(huffman, bytes([0x10]) + one_bit_and_two + bytes([0xE0, 0]))
    first = jpeg_segment(scan, bytes([1, 1, 0, 0, 0, 0])) + _filled_up("0" * blocks)
    zeros = ("0" + "0" * 14) * (blocks // 2**14 + 1)
    zeros_again = jpeg_segment(scan, bytes([1, 1, 0, 1, 63, 0])) + _filled_up(zeros)
    return file + first + zeros_again * (scans - 1) + b"\xff\xd9"


def _filled_up(bits: str) -> bytes:
    bits += "1" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big")


# --- PNG files that no encoder would write ---

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def chunk(name: bytes, content: bytes = b"") -> bytes:
    """Return a chunk with a valid checksum."""
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


END = chunk(b"IEND")


def png_header(
    width: int, height: int, bits: int = 8, color_type: int = 2, interlaced: bool = False
) -> bytes:
    """Return the signature and the header chunk."""
    fields = struct.pack(">IIBBBBB", width, height, bits, color_type, 0, 0, interlaced)
    return SIGNATURE + chunk(b"IHDR", fields)


def png_file(
    width: int,
    height: int,
    color_type: int = 2,
    pixels: bytes | None = None,
    before: bytes = b"",
    after: bytes = b"",
    bits: int = 8,
    interlaced: bool = False,
) -> bytes:
    """Return a file with zero pixels by default. before, after: further chunks around the pixels."""
    samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color_type]
    if pixels is None:
        pixels = bytes((width * samples * bits // 8 + 1) * height)
    header = png_header(width, height, bits, color_type, interlaced)
    return header + before + chunk(b"IDAT", zlib.compress(pixels)) + after + END


def wide_files(width: int) -> dict[str, bytes]:
    """Return files of one row, with their pixels where these are few bytes, by format."""
    bits = bytes(-(-width // 8))
    rows = bits + bytes(-len(bits) % 4)
    bmp = (
        struct.pack("<IiiHHIIiiII", 40, width, 1, 1, 1, 0, len(rows), 0, 0, 2, 0) + b"\0\0\0\0\xff\xff\xff\0"
    )
    tiff = io.BytesIO()
    PIL.Image.new("1", (width, 1)).save(tiff, "TIFF", compression="group4")
    return {
        "PNG": png_file(width, 1, color_type=0),
        "BMP": b"BM" + struct.pack("<IHHI", 62 + len(rows), 0, 0, 62) + bmp + rows,
        "PPM": b"P4 %d 1\n" % width + bits,
        "TIFF": tiff.getvalue(),
    }


# --- EXIF data, good and broken ---

EXIF_HEADER = b"Exif\0\0"
ORIENTATION = 0x0112
SHORT, LONG = 3, 4
_SIZES = {SHORT: "H", LONG: "I"}


def entry(order: str, tag: int, kind: int, count: int, value: int) -> bytes:
    """Return an entry of a TIFF directory. order: "<" or ">", as in `struct`."""
    held = struct.pack(f"{order}{_SIZES.get(kind, 'H')}", value)
    return struct.pack(f"{order}HHI", tag, kind, count) + held.ljust(4, b"\0")


def tiff(order: str, entries: bytes, count: int | None = None, at: int = 8) -> bytes:
    """Return a TIFF structure. count: stated number of entries. at: offset of the only directory."""
    if count is None:
        count = len(entries) // 12
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", at)
    directory = struct.pack(f"{order}H", count) + entries + bytes(4)
    return head.ljust(at, b"\0") + directory


def exif(orientation: int, order: str = "<") -> bytes:
    """Return EXIF data with an orientation and two other entries."""
    other = entry(order, 0x0100, LONG, 1, 640), entry(order, 0x0213, SHORT, 1, 1)
    return tiff(order, other[0] + entry(order, ORIENTATION, SHORT, 1, orientation) + other[1])


def broken_exif() -> dict[str, bytes]:
    """Return EXIF data without a valid orientation, by name. Most hold a 6 that a careless reader finds."""
    six = entry("<", ORIENTATION, SHORT, 1, 6)
    good = tiff("<", six)
    return {
        "directory is the header": b"II*\0" + bytes(104),
        "no byte order": b"XX" + good[2:],
        "other byte order in the mark": b"MM" + good[2:],
        "wrong magic number": good[:2] + b"+\0" + good[4:],
        "header of the segment twice": 2 * EXIF_HEADER + good,
        "directory behind the end": good[:4] + struct.pack("<I", len(good)) + good[8:],
        "directory at its last byte": good[:4] + struct.pack("<I", len(good) - 1) + good[8:],
        **{f"cut off after {end} bytes": good[:end] for end in range(22)},
        "no entries": tiff("<", six, count=0),
        "fewer entries than there are": tiff("<", entry("<", 0x0100, SHORT, 1, 6) + six, count=1),
        "orientation 0": tiff("<", entry("<", ORIENTATION, SHORT, 1, 0)),
        "orientation 9": tiff("<", entry("<", ORIENTATION, SHORT, 1, 9)),
        "orientation 256 * 6": tiff("<", entry("<", ORIENTATION, SHORT, 1, 6 << 8)),
        "type LONG": tiff("<", entry("<", ORIENTATION, LONG, 1, 6)),
        "unknown type": tiff("<", entry("<", ORIENTATION, 99, 1, 6)),
        "count 0": tiff("<", entry("<", ORIENTATION, SHORT, 0, 6)),
        "count 65537": tiff("<", entry("<", ORIENTATION, SHORT, 65537, 6)),
        "first of two is invalid": tiff("<", entry("<", ORIENTATION, SHORT, 1, 0) + six),
        "first of two is another type": tiff("<", entry("<", ORIENTATION, LONG, 1, 6) + six),
        "in the second directory": _second_directory(six),
    }


def odd_exif() -> dict[str, bytes]:
    """Return unusual EXIF data with orientation 6, by name."""
    six = entry("<", ORIENTATION, SHORT, 1, 6)
    return {
        "nothing behind the entry": tiff("<", six)[:22],
        "more entries than there are": tiff("<", six, count=500),
        "entries out of order": tiff("<", entry("<", 0x0213, SHORT, 1, 1) + six),
        "second one differs": tiff("<", six + entry("<", ORIENTATION, SHORT, 1, 3)),
        "directory at an odd place": tiff("<", six, at=77),
        "many entries": tiff("<", entry("<", 0x0100, SHORT, 1, 1) * 3000 + six),
        "a value of four bytes": tiff("<", six[:10] + b"\xff\xff"),
        "big-endian": tiff(">", entry(">", ORIENTATION, SHORT, 1, 6)),
        "in a large block": tiff("<", six) + bytes(60_000),
    }


def _second_directory(orientation: bytes) -> bytes:
    first = tiff("<", entry("<", 0x0100, SHORT, 1, 6))
    return first[:-4] + struct.pack("<I", len(first)) + tiff("<", orientation)[8:]


def jpeg_with_exif(jpeg: bytes, data: bytes, header: bytes = EXIF_HEADER) -> bytes:
    """Return the JPEG file with a first segment APP1."""
    content = header + data
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(content) + 2) + content + jpeg[2:]


def png_with_exif(png: bytes, data: bytes) -> bytes:
    """Return the PNG file with a chunk eXIf behind its header."""
    after_header = 8 + 25
    return png[:after_header] + chunk(b"eXIf", data) + png[after_header:]
