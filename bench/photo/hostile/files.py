"""All hostile files, each of at most a megabyte."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from lensbox.bench.photo.hostile import jpeg_files, other_files, png_files
from lensbox.bench.photo.hostile.exif import ON_ITS_SIDE
from lensbox.serve.image_limits import MAX_RUN_LENGTH_PIXELS


@dataclass(frozen=True)
class HostileFile:
    """make: the file, of about side x side pixels where its size does not matter. meant: what the service
    should make of it, however small it is made."""

    name: str
    make: Callable[[int], bytes]
    meant: Literal["decoded", "refused"] = "decoded"


HOSTILE_FILES = [
    HostileFile("progressive JPEG, gray, most scans", jpeg_files.many_scans),
    HostileFile("progressive JPEG, color, most scans", partial(jpeg_files.many_scans, components=3)),
    HostileFile("progressive JPEG, CMYK, most scans", partial(jpeg_files.many_scans, components=4)),
    HostileFile("progressive JPEG, CMYK, most scans, all interleaved", jpeg_files.interleaved_scans),
    HostileFile("progressive JPEG, a strip, most scans", jpeg_files.many_scans_of_a_strip),
    HostileFile("progressive JPEG, one scan too many", jpeg_files.too_many_scans, "refused"),
    HostileFile("progressive JPEG, complete", partial(jpeg_files.flat, progressive=True)),
    HostileFile("baseline JPEG, complete", partial(jpeg_files.flat, progressive=False)),
    HostileFile("JPEG, arithmetic coding", jpeg_files.arithmetic_coding, "refused"),
    HostileFile("JPEG, restart markers", jpeg_files.restart_markers),
    HostileFile("JPEG, 90,000 segments", partial(jpeg_files.segments, count=90_000)),
    HostileFile("JPEG, 240,000 segments", partial(jpeg_files.segments, count=240_000), "refused"),
    HostileFile("JPEG, a megabyte of fill bytes", jpeg_files.fill_bytes, "refused"),
    HostileFile("JPEG, cut off at once", jpeg_files.no_end, "refused"),
    HostileFile("PNG bomb, 8 bits", partial(png_files.bomb, bits=8)),
    HostileFile("PNG bomb, 16 bits", partial(png_files.bomb, bits=16)),
    HostileFile("PNG bomb, 16 bits, interlaced", partial(png_files.bomb, bits=16, interlaced=True)),
    HostileFile("PNG bomb, 8 bits, on its side", partial(png_files.bomb, bits=8, on_its_side=True)),
    HostileFile("PNG bomb, 16 bits, on its side", partial(png_files.bomb, bits=16, on_its_side=True)),
    HostileFile("PNG, a billion pixels", png_files.too_many_pixels, "refused"),
    HostileFile("PNG, 40,000 chunks of data", partial(png_files.empty_data_chunks, count=40_000)),
    HostileFile("PNG, 83,000 chunks of data", partial(png_files.empty_data_chunks, count=83_000), "refused"),
    HostileFile("PNG, empty deflate blocks", png_files.empty_blocks),
    HostileFile("PNG, bombs in metadata", png_files.metadata_bomb),
    HostileFile("GIF, noise", partial(other_files.gif, interlaced=False)),
    HostileFile("GIF, noise, interlaced", partial(other_files.gif, interlaced=True)),
    HostileFile("GIF, 90,000 blocks", partial(other_files.gif_of_small_blocks, count=90_000)),
    HostileFile("WebP, lossless", partial(other_files.webp, lossless=True, alpha=True)),
    HostileFile(
        "WebP, lossless, on its side",
        partial(other_files.webp, lossless=True, alpha=True, exif=b"Exif\0\0" + ON_ITS_SIDE),
    ),
    HostileFile("WebP, lossy", partial(other_files.webp, lossless=False, alpha=False)),
    HostileFile("WebP, lossy with alpha", partial(other_files.webp, lossless=False, alpha=True)),
    HostileFile("BMP, run-length coded", partial(other_files.run_length_bmp, pixels=MAX_RUN_LENGTH_PIXELS)),
    HostileFile("BMP, one bit", other_files.bilevel_bmp),
]
