"""Image files for tests: JPEG by Pillow, PNG by hand, because Pillow writes few of the kinds there are."""

import struct
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import PIL.Image
from picture_files import encoded, jpeg_segment
from png_files import chunk, png_file

GRAY, RGB, PALETTE, GRAY_ALPHA, RGBA = 0, 2, 3, 4, 6
_CHANNELS = {GRAY: 1, RGB: 3, PALETTE: 1, GRAY_ALPHA: 2, RGBA: 4}
_BIT_DEPTHS = {
    GRAY: (1, 2, 4, 8, 16),
    RGB: (8, 16),
    PALETTE: (1, 2, 4, 8),
    GRAY_ALPHA: (8, 16),
    RGBA: (8, 16),
}
# First row and column of each pass of an interlaced PNG, and the steps from there.
_PASSES = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]


def noise(mode: str, width: int = 90, height: int = 70) -> PIL.Image.Image:
    """A random image, the same in every run, with large structures so that it survives being made smaller."""
    generator = np.random.default_rng(7)
    coarse = PIL.Image.fromarray(generator.integers(0, 256, (9, 11, 4), dtype=np.uint8), "RGBA")
    picture = coarse.resize((width, height), PIL.Image.Resampling.BICUBIC)
    if mode == "I;16":
        return PIL.Image.fromarray(np.asarray(picture.convert("L")).astype(np.uint16) * 256 + 77)
    # Not RGBA to P, which quantises the alpha too.
    return picture.convert("RGB").convert(mode) if mode == "P" else picture.convert(mode)


def png(
    samples: npt.NDArray[np.uint16], bits: int, color_type: int, interlaced: bool, between: bytes = b""
) -> bytes:
    """samples: [H, W, channels], `bits` bits each. between: the chunks between header and data."""
    passes = [samples]
    if interlaced:
        passes = [samples[top::down, left::right] for top, left, down, right in _PASSES]
    rows = b"".join(b"\0" + _packed(row, bits) for part in passes if part.size for row in part)
    height, width = samples.shape[:2]
    return png_file(width, height, color_type, rows, between, bits=bits, interlaced=interlaced)


def _packed(row: npt.NDArray[np.uint16], bits: int) -> bytes:
    """The samples of a row as bits, highest first, filled up to whole bytes."""
    columns = (row.reshape(-1, 1) >> np.arange(bits - 1, -1, -1)) & 1
    return np.packbits(columns.astype(np.uint8)).tobytes()


def pngs() -> Iterator[tuple[str, bytes]]:
    """Every color type, bit depth and interlacing, with and without transparent colors: names and files."""
    generator = np.random.default_rng(8)
    for color_type, depths in _BIT_DEPTHS.items():
        for bits in depths:
            shape = (19, 21, _CHANNELS[color_type])
            samples = generator.integers(0, 2**bits, shape, dtype=np.uint16)
            palette = chunk(b"PLTE", generator.bytes(3 * 2**bits)) if color_type == PALETTE else b""
            variants = {"": palette}
            if color_type == PALETTE:
                variants["-transparent"] = palette + chunk(b"tRNS", generator.bytes(2**bits))
            elif color_type in (GRAY, RGB):
                key = samples[0, 0].astype(">u2").tobytes()
                variants["-transparent"] = chunk(b"tRNS", key)
            for suffix, chunks in variants.items():
                for interlaced in (False, True):
                    name = f"type{color_type}-{bits}bit{suffix}{'-interlaced' if interlaced else ''}"
                    yield name, png(samples, bits, color_type, interlaced, chunks)
    for mode in ("L", "RGB", "RGBA", "LA", "P", "1", "I;16"):
        yield f"pillow-{mode.replace(';', '')}", encoded(noise(mode), "PNG")


SMALL_SIZES = ((64, 64), (51, 37), (1, 1), (7, 130))


def jpegs(sizes: Sequence[tuple[int, int]] = SMALL_SIZES) -> Iterator[tuple[str, bytes]]:
    """Names and files of every kind that Pillow writes, and some more. sizes: widths and heights."""
    # From 4:4:4 to 4:2:0 by Pillow. The last two have as many blocks as those that Pillow writes, so a file
    # whose header is changed to them is as good, if no picture that one would recognise.
    samplings = {"444": (0, 0x11), "422": (1, 0x21), "420": (2, 0x22), "440": (1, 0x12), "411": (2, 0x41)}
    for progressive in (False, True):
        kind = "progressive" if progressive else "baseline"
        for width, height in sizes:
            options = {"progressive": progressive, "quality": 80}
            for name, (subsampling, luma) in samplings.items():
                if luma in (0x12, 0x41) and (width % 32 or height % 32):
                    continue
                file = encoded(noise("RGB", width, height), "JPEG", subsampling=subsampling, **options)
                yield f"{kind}-{name}-{width}x{height}", with_luma_sampling(file, luma)
            yield f"{kind}-gray-{width}x{height}", encoded(noise("L", width, height), "JPEG", **options)
            cmyk = encoded(noise("CMYK", width, height), "JPEG", **options)
            yield f"{kind}-cmyk-{width}x{height}", cmyk
        picture = noise("RGB", *max((90, 70), sizes[-1]))
        restarts = encoded(picture, "JPEG", progressive=progressive, restart_marker_blocks=3)
        yield f"{kind}-restarts", restarts
        yield f"{kind}-rgb", encoded(picture, "JPEG", progressive=progressive, keep_rgb=True)
        adobe = cmyk.index(b"Adobe")
        yield f"{kind}-ycck", cmyk[: adobe + 11] + b"\2" + cmyk[adobe + 12 :]
        yield f"{kind}-cmyk-without-adobe", cmyk[: adobe - 4] + cmyk[adobe + 12 :]


def with_luma_sampling(jpeg: bytes, factors: int) -> bytes:
    """The file with other sampling factors (0x21: two across, one down) of its first component."""
    at = max(jpeg.find(marker) for marker in (b"\xff\xc0\0\x11", b"\xff\xc2\0\x11")) + 11
    return jpeg[:at] + bytes([factors]) + jpeg[at + 1 :]


def flat_jpeg(width: int, height: int, scans: int) -> bytes:
    """A gray image of one value, progressive. Its later scans refine zeros: slow, and of few bytes."""
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
    refinement = jpeg_segment(scan, bytes([1, 1, 0, 1, 63, 0x10])) + _filled_up(zeros)
    return file + first + refinement * (scans - 1) + b"\xff\xd9"


def _filled_up(bits: str) -> bytes:
    bits += "1" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big")
