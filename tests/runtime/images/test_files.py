"""Reading image files: what is decoded to which pixels, and what is refused."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch
from png_files import chunk, png_file

from lensbox.common.errors import InputError
from lensbox.runtime.images import decoder
from lensbox.runtime.images.decoder import TooManyPixelsError, decode_photo
from lensbox.runtime.images.files import DEFAULT_READING, MAX_PIECES, read_image
from lensbox.runtime.images.limits import ImageLimits

NO_LIMITS = ImageLimits()
GRAY = np.arange(20, dtype=np.uint8).reshape(4, 5) * 12
RGB = np.stack([GRAY, 255 - GRAY, GRAY // 2], axis=-1)
RGBA = np.concatenate([RGB, GRAY[..., None]], axis=-1)


def encode(image: PIL.Image.Image, file_format: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, file_format, **options)
    return buffer.getvalue()


def decode(
    file: bytes,
    limits: ImageLimits = NO_LIMITS,
    open_image: Callable[[io.BytesIO], PIL.Image.Image] = PIL.Image.open,
) -> torch.Tensor:
    return decode_photo(file, None, DEFAULT_READING, limits, open_image).pixels


@pytest.mark.parametrize("pixels", [GRAY, RGB, RGBA])
def test_gray_rgb_and_rgba_stay_as_they_are(pixels: np.ndarray, tmp_path: Path) -> None:
    content = encode(PIL.Image.fromarray(pixels))
    expected = torch.from_numpy(pixels.reshape(4, 5, -1)).permute(2, 0, 1)
    path = tmp_path / "image.png"
    path.write_bytes(content)
    for source in (content, path, str(path)):
        tensor = read_image(source)
        assert tensor.dtype == torch.uint8
        assert tensor.permute(1, 2, 0).is_contiguous()
        assert torch.equal(tensor, expected)


@pytest.mark.parametrize(
    ("color_type", "samples", "expected"),
    [
        (0, 1, [0x12]),
        (2, 3, [0x12, 0x56, 0x9A]),
        (4, 2, [0x12]),
        (6, 4, [0x12, 0x56, 0x9A, 0xDE]),
    ],
    ids=["gray", "RGB", "gray and alpha", "RGBA"],
)
def test_of_sixteen_bits_the_high_byte_is_kept(color_type: int, samples: int, expected: list[int]) -> None:
    row = b"\0" + bytes((0x12, 0xFF, 0x56, 0xFF, 0x9A, 0xFF, 0xDE, 0xFF))[: 2 * samples]
    read = read_image(png_file(1, 1, color_type, row, bits=16))
    assert read.flatten().tolist() == expected


@pytest.mark.parametrize(
    ("bits", "levels"), [(1, [0, 255]), (2, [0, 85, 170, 255]), (4, [17 * level for level in range(16)])]
)
def test_few_bits_span_all_levels(bits: int, levels: list[int]) -> None:
    packed = int("".join(f"{level:0{bits}b}" for level in range(1 << bits)), 2)
    width = 1 << bits
    row = b"\0" + (packed << (-width * bits % 8)).to_bytes(-(-width * bits // 8), "big")
    assert read_image(png_file(width, 1, 0, row, bits=bits)).flatten().tolist() == levels


@pytest.mark.parametrize("file_format", ["GIF", "WEBP", "PNG"])
def test_of_several_pictures_the_first_is_read(file_format: str) -> None:
    first, second = (PIL.Image.new("RGB", (8, 6), color) for color in ("red", "blue"))
    file = encode(first, file_format, save_all=True, append_images=[second])
    read = read_image(file)
    assert read.shape[1:] == (6, 8)
    assert read[0].min() > 200
    assert read[2].max() < 50


def test_colors_are_those_stored_where_alpha_says_nothing_is_seen() -> None:
    hidden = RGBA.copy()
    hidden[..., 3] = 0
    read = read_image(encode(PIL.Image.fromarray(hidden)))
    assert torch.equal(read[:3], torch.from_numpy(RGB).permute(2, 0, 1))
    keyed = encode(PIL.Image.fromarray(RGB), transparency=tuple(int(value) for value in RGB[0, 0]))
    assert torch.equal(read_image(keyed)[:3], torch.from_numpy(RGB).permute(2, 0, 1))


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"source must be an image file, got .*nothing\.png"):
        read_image(tmp_path / "nothing.png")


@pytest.mark.parametrize(
    "content",
    [b"", b"not an image", encode(PIL.Image.fromarray(RGB))[:45]],
    ids=["empty", "text", "truncated"],
)
def test_what_cannot_be_decoded_is_refused(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the image data must be an image that Pillow can decode"):
        read_image(content)
    path = tmp_path / "bad.png"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"bad\.png must be an image that Pillow can decode"):
        read_image(path)


def test_an_empty_file_is_said_to_be_empty(tmp_path: Path) -> None:
    (tmp_path / "bad.png").touch()
    with pytest.raises(ValueError, match=r"bad\.png must be an image that Pillow can decode: it is empty$"):
        read_image(tmp_path / "bad.png")


def test_damaged_compressed_data_is_refused() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8)
    content = bytearray(encode(PIL.Image.fromarray(noise)))
    content[len(content) // 2 :] = bytes(len(content) - len(content) // 2)
    with pytest.raises(ValueError, match="must be an image that Pillow can decode"):
        read_image(bytes(content))


def test_decompression_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 8)
    with pytest.raises(ValueError, match="must be an image that Pillow can decode"):
        read_image(encode(PIL.Image.fromarray(RGB)))


_YCBCR = pytest.param(
    "YCbCr",
    marks=pytest.mark.skipif(
        int(PIL.__version__.split(".")[0]) < 13,
        reason="this Pillow cannot read its own YCbCr TIFF",
    ),
)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", _YCBCR, "I;16", "I", "F"])
@pytest.mark.parametrize("tile", [1, 3, 7, 100])
def test_every_pixel_is_converted_alike(mode: str, tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Store the image in tiles of part of a row, one row, and several rows."""
    monkeypatch.setattr(decoder, "_TILE_PIXELS", tile)
    deep = PIL.Image.fromarray(GRAY.astype(np.uint16) * 250)
    image = deep if mode == "I;16" else PIL.Image.fromarray(RGB).convert(mode)
    if mode.startswith("I"):
        expected = (np.asarray(image).astype(np.int64) >> 8).astype(np.uint8)
    elif mode in ("RGB", "RGBA"):
        expected = np.asarray(image)
    else:
        expected = np.asarray(image.convert("L" if mode in ("1", "L", "LA", "F") else "RGB"))
    read = read_image(encode(image, "TIFF"))
    assert torch.equal(read, torch.from_numpy(expected.reshape(4, 5, -1).copy()).permute(2, 0, 1))
    assert read.permute(1, 2, 0).is_contiguous()


@pytest.mark.parametrize(
    "file",
    [
        png_file(1, 1, 3, before=chunk(b"tRNS", b"\0")),
        png_file(1, 1, 3),
        png_file(1, 1, 0, after=chunk(b"iCCP")),
    ],
    ids=["transparency without a palette", "no palette", "empty color profile"],
)
def test_damage_that_pillow_has_no_error_for(file: bytes) -> None:
    with pytest.raises(InputError, match="the image data must be an image that Pillow can decode"):
        read_image(file)


def test_whatever_a_decoder_raises_means_a_bad_file() -> None:
    for error in (KeyError("mode"), RecursionError("deep"), AssertionError(), EOFError("end")):

        def fail(_: object, error: Exception = error) -> PIL.Image.Image:
            raise error

        with pytest.raises(InputError, match=str(error) or "AssertionError"):
            decode(b"", open_image=fail)


def test_lack_of_memory_is_not_the_fault_of_the_file() -> None:
    def fail(_: object) -> PIL.Image.Image:
        raise MemoryError

    with pytest.raises(MemoryError):
        decode(b"", open_image=fail)


def test_pixels_are_limited() -> None:
    file = encode(PIL.Image.fromarray(RGB))
    assert decode(file, ImageLimits(max_pixels=20)).shape == (3, 4, 5)
    with pytest.raises(TooManyPixelsError, match="the image must have at most 19 pixels, got 5 x 4 = 20"):
        decode(file, ImageLimits(max_pixels=19))


class Clock:
    """Advances by a second whenever somebody looks."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


@pytest.mark.parametrize("file_format", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
def test_no_decode_outlives_its_deadline(file_format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = encode(PIL.Image.fromarray(RGB), file_format)
    clock = Clock()
    monkeypatch.setattr("lensbox.runtime.images.limits.time.monotonic", clock)
    decode(file, ImageLimits(deadline=1e9))
    looks = int(clock.now)
    assert looks >= 2
    for seconds in range(looks):
        clock.now = 0.0
        with pytest.raises(TimeoutError, match="the image was not decoded in time"):
            decode(file, ImageLimits(deadline=seconds))
        assert clock.now == seconds + 1, "it went on after the deadline"


def test_pieces_are_limited() -> None:
    file = encode(PIL.Image.fromarray(RGB).quantize(8), "GIF")
    begin = file.index(b",", 13 + 3 * 8)
    file = file[:begin] + b"!\xfe" + b"\x01c" * 500 + b"\0" + file[begin:]
    assert decode(file, ImageLimits(max_pieces=1100)).shape == (3, 4, 5)
    with pytest.raises(InputError, match="it must be readable in at most 900 pieces"):
        decode(file, ImageLimits(max_pieces=900))


def test_pieces_are_limited_outside_a_service_too() -> None:
    file = encode(PIL.Image.fromarray(RGB))
    at = 8 + 25
    many = file[:at] + chunk(b"abCd") * MAX_PIECES + file[at:]
    with pytest.raises(InputError, match=f"a PNG file must have at most {MAX_PIECES} chunks"):
        read_image(many)
