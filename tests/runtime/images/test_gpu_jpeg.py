"""JPEG files that the GPU's hardware decodes: which they are, and that their pixels are those of the CPU."""

import io
import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch
from exif_files import exif, jpeg_with_exif
from image_mutations import mutated
from user_detectors import RedAndBlue

import lensbox.ops  # noqa: F401 (registers lensbox_jpeg)
from lensbox.artifact.metadata import Canvas, Reading
from lensbox.common.errors import DeviceError, InputError
from lensbox.common.fields import Orientation
from lensbox.export.pipeline import save_artifact
from lensbox.runtime.images.files import read_photo
from lensbox.runtime.images.gpu_jpeg import (
    CodedPhoto,
    GpuJpegDecoder,
    coded_photo,
    decode_on_gpu,
    gpu_jpeg_decoder,
)
from lensbox.runtime.loading import load_artifact

GRAY = Canvas(256, 256, 1)
COLORS = Canvas(256, 256, 3)
FULL = Reading(jpeg_oversampling=0)
CPU = torch.device("cpu")


def _encode(width: int, height: int, mode: str = "RGB", noise: int = 12, **options: Any) -> bytes:
    generator = np.random.default_rng(width * 7919 + height)
    coarse = generator.integers(0, 256, (height // 9 + 2, width // 9 + 2, 3), np.uint8)
    smooth = np.asarray(PIL.Image.fromarray(coarse).resize((width, height), PIL.Image.Resampling.BICUBIC))
    noisy = np.clip(smooth + generator.integers(-noise, noise + 1, smooth.shape), 0, 255).astype(np.uint8)
    buffer = io.BytesIO()
    PIL.Image.fromarray(noisy).convert(mode).save(buffer, "JPEG", **options)
    return buffer.getvalue()


def _sound_files(sizes: list[tuple[int, int]], noise: int = 12) -> Iterator[bytes]:
    for (width, height), quality in itertools.product(sizes, (3, 75, 95)):
        yield _encode(width, height, "L", noise, quality=quality)
        for sampling in ("4:4:4", "4:2:2", "4:2:0"):
            yield _encode(width, height, "RGB", noise, quality=quality, subsampling=sampling)
        yield _encode(width, height, "RGB", noise, quality=quality, restart_marker_blocks=3)


def _with_byte(file: bytes, at: int, value: int) -> bytes:
    return file[:at] + bytes((value,)) + file[at + 1 :]


def _begin_of_data(file: bytes) -> int:
    begin = file.index(b"\xff\xda")
    return begin + 2 + int.from_bytes(file[begin + 2 : begin + 4], "big")


def _with_long_codes() -> bytes:
    """Return four flat blocks, with one code of 12 bits for all DC and one of 11 for all AC coefficients.

    Encoders give long codes to rare symbols, and such codes begin with ones; these are zeros.
    """
    buffer = io.BytesIO()
    PIL.Image.new("L", (16, 16), 128).save(buffer, "JPEG")
    file = buffer.getvalue()
    tables = b"".join(
        kind + bytes(length == bits for length in range(1, 17)) + b"\0"
        for kind, bits in ((b"\x00", 12), (b"\x10", 11))
    )
    scan = file.index(b"\xff\xda")
    data = int("0" * 4 * (12 + 11) + "1111", 2).to_bytes(12, "big")
    header = file[: file.index(b"\xff\xc4")] + b"\xff\xc4" + (2 + len(tables)).to_bytes(2, "big") + tables
    return header + file[scan : _begin_of_data(file)] + data + b"\xff\xd9"


WIDE = _encode(48, 32, subsampling="4:2:2")
TALL = _with_byte(WIDE, WIDE.index(b"\xff\xc0") + 11, 0x12)  # the same blocks as 4:4:0
SMALL = list(_sound_files([(1, 1), (8, 8), (17, 33), (101, 67)]))
LARGE = list(_sound_files([(300, 200)], noise=40))
BASELINE = _encode(101, 67)
RESTARTED = _encode(101, 67, restart_marker_blocks=2)
LONG_CODES = _with_long_codes()


def _bytes(file: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(file), dtype=torch.uint8)


def _is_accepted(file: bytes) -> bool:
    return bool(torch.ops.lensbox_jpeg.headers([_bytes(file)]).any())


def _is_sound(file: bytes) -> bool:
    found = {bool(torch.ops.lensbox_jpeg.is_sound(_bytes(file), parts)) for parts in (1, 3, 40, 300)}
    assert len(found) == 1  # a walk in parts finds what a walk from the begin does
    return found.pop()


def test_sound_files_are_accepted() -> None:
    files = [
        *SMALL,
        *LARGE,
        *(_encode(101, 67, quality=quality, optimize=True) for quality in (3, 75, 95)),
        TALL,
        BASELINE + b"behind the end",
        jpeg_with_exif(BASELINE, exif(6)),
    ]
    for file in files:
        assert _is_accepted(file)
        assert _is_sound(file)


@pytest.mark.parametrize(
    "file",
    [
        b"\xff",
        _encode(101, 67, progressive=True),
        _encode(101, 67, "CMYK"),
        _encode(101, 67, keep_rgb=True),  # with Adobe's marker
        BASELINE[:-2],
        BASELINE[:-300],
        BASELINE[: _begin_of_data(BASELINE)],
        BASELINE.replace(b"\xff\xc0", b"\xff\xc1"),
        RESTARTED.replace(b"\xff\xd1", b"\xff\xd2", 1),
        RESTARTED.replace(b"\xff\xd1", b"", 1),
        BASELINE[:-2] + b"\xff\xd0\xff\xd9",
        _with_byte(BASELINE, BASELINE.index(b"\xff\xc0") + 11, 0x41),  # luma four times as wide as chroma
        LONG_CODES,
    ],
)
def test_other_kinds_and_broken_structure_are_refused(file: bytes) -> None:
    assert not _is_accepted(file)


def test_the_cpu_decodes_long_codes_that_walks_do_not_look_up() -> None:
    assert (read_photo(LONG_CODES, GRAY, FULL).pixels == 128).all()


def test_broken_codes_are_found() -> None:
    begin = _begin_of_data(BASELINE) + 50
    for broken in (
        BASELINE[:begin] + BASELINE[begin + 10 :],  # missing
        BASELINE[:begin] + b"\x55" * 10 + BASELINE[begin:],  # left over
        BASELINE[:begin] + b"\xff\0" * 20 + BASELINE[begin + 40 :],  # a code is never all ones
    ):
        assert _is_accepted(broken)
        assert not _is_sound(broken)


@pytest.mark.parametrize("seed", range(60))
def test_damaged_files_that_pass_are_sound_to_libjpeg(seed: int) -> None:
    simplejpeg = pytest.importorskip("simplejpeg")
    chance = random.Random(seed)
    for _ in range(10):
        damaged = mutated(chance.choice(SMALL), chance)
        if damaged and _is_sound(damaged):
            simplejpeg.decode_jpeg(damaged, "GRAY", strict=True)  # raises what libjpeg would warn of


def test_walks_in_parts_find_damage() -> None:
    chance = random.Random(28)
    found = [_is_sound(_damaged(chance.choice(LARGE), chance)) for _ in range(100)]
    assert set(found) == {True, False}


def test_files_that_are_reduced_or_not_baseline_stay_on_the_cpu() -> None:
    files = [BASELINE, _encode(1100, 1100), _encode(101, 67, progressive=True), b"\x89PNG", b""]
    for reading, expected in ((Reading(), [True] + 4 * [False]), (FULL, 2 * [True] + 3 * [False])):
        found = GpuJpegDecoder(CPU, GRAY, reading).read(files)
        assert [isinstance(one, CodedPhoto) for one in found] == expected


@pytest.mark.parametrize("orientation", ["exif", "stored"])
def test_header_says_what_the_front_end_finds(orientation: Orientation) -> None:
    """The service checks headers without the op library, `GpuJpegDecoder` with it."""
    reading = replace(Reading(), orientation=orientation)
    other_app1 = b"\xff\xe1\0\x0ahttp://x"
    files = [BASELINE, BASELINE[:2] + other_app1 + jpeg_with_exif(BASELINE, exif(6))[2:]]
    files += [jpeg_with_exif(file, exif(turn)) for turn in range(10) for file in files[:2]]
    for file, found in zip(files, GpuJpegDecoder(CPU, GRAY, reading).read(files), strict=True):
        expected = coded_photo(file, file, GRAY, reading)
        assert found is not None
        assert expected is not None
        assert np.asarray(found.file).tobytes() == np.asarray(expected.file).tobytes() == file
        assert found._replace(file=expected.file) == expected


def test_the_ops_get_the_files_of_front_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[list[bytes]] = []

    def decode(files: list[torch.Tensor], device: torch.device) -> list[torch.Tensor]:
        got.append([bytes(file.numpy()) for file in files])
        return [torch.empty(0, dtype=torch.uint8), *(len(files) - 1) * [torch.zeros(1, 67, 101).byte()]]

    monkeypatch.setattr(torch.ops, "lensbox_jpeg", SimpleNamespace(decode_luma=decode))
    turned = jpeg_with_exif(BASELINE, exif(6))
    contents: list[bytes | bytearray] = [BASELINE, bytearray(BASELINE), turned]
    files = [coded_photo("", content, GRAY, FULL) for content in contents]
    photos = decode_on_gpu([file for file in files if file is not None], CPU, GRAY)
    assert got == [contents]
    assert [photo and (photo.width, photo.height) for photo in photos] == [None, (101, 67), (67, 101)]


def test_files_without_pixels_or_above_512_kib_are_not_handed_over() -> None:
    """A front end looks at sizes without the op library, so both must refuse the same ones."""
    frame = BASELINE.index(b"\xff\xc0") + 5
    assert coded_photo("a.jpg", BASELINE[:frame] + bytes(4) + BASELINE[frame + 4 :], GRAY, FULL) is None
    largest = BASELINE.ljust(1 << 19, b"\0")
    for file, is_taken in ((largest, True), (largest + b"\0", False)):
        assert (coded_photo("a.jpg", file, GRAY, FULL) is not None) == is_taken
        assert _is_accepted(file) == is_taken


def test_files_are_read_from_paths_and_from_memory(tmp_path: Path) -> None:
    contents = [
        BASELINE,
        RESTARTED,
        jpeg_with_exif(BASELINE, exif(6)),
        _encode(101, 67, progressive=True),
        _encode(1100, 1100),  # read at half its size
        _encode(1100, 1100, noise=120, quality=100),  # larger than 512 KiB
        BASELINE[:-300],
        b"",
    ]
    paths = [tmp_path / f"{index} ä.jpg" for index in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    others = [tmp_path, tmp_path / "missing.jpg", tmp_path / "\udcff.jpg"]
    found = GpuJpegDecoder(CPU, GRAY, Reading()).read([*paths, *others, *contents])
    assert [one is not None for one in found] == [*3 * [True], *8 * [False], *3 * [True], *5 * [False]]
    for index, content in enumerate(contents[:3]):
        for photo, source in ((found[index], paths[index]), (found[11 + index], content)):
            assert photo is not None
            assert np.asarray(photo.file).tobytes() == content
            assert photo.source == source
            expected = (6, 67, 101) if index == 2 else (1, 101, 67)
            assert (photo.orientation, photo.width, photo.height) == expected


def test_who_decodes() -> None:
    assert gpu_jpeg_decoder(CPU, GRAY, FULL, "auto", 512) is None
    assert gpu_jpeg_decoder(CPU, GRAY, FULL, "cpu", 512) is None
    with pytest.raises(DeviceError, match="decode must be 'auto' or 'cpu' here, got 'gpu': the detector"):
        gpu_jpeg_decoder(CPU, GRAY, FULL, "gpu", 1)
    with pytest.raises(ValueError, match="decode must be 'auto', 'cpu' or 'gpu', got 'nvjpeg'"):
        gpu_jpeg_decoder(CPU, GRAY, FULL, "nvjpeg", 1)  # type: ignore[arg-type]


@pytest.fixture(params=[GRAY, COLORS], ids=["gray", "colors"])
def canvas(request: pytest.FixtureRequest) -> Canvas:
    found: Canvas = request.param
    return found


@pytest.fixture
def decoder(canvas: Canvas) -> GpuJpegDecoder:
    try:
        made = gpu_jpeg_decoder(torch.device("cuda", 0), canvas, FULL, "gpu", 32)
    except DeviceError as error:
        pytest.skip(str(error))
    assert made is not None
    return made


def _coded(decoder: GpuJpegDecoder, files: list[bytes]) -> list[CodedPhoto]:
    return [one for one in decoder.read(files) if one is not None]


def _assert_like_the_cpu(decoder: GpuJpegDecoder, canvas: Canvas, files: list[bytes]) -> None:
    for file, photo in zip(files, decoder.decode(_coded(decoder, files)), strict=True):
        assert photo is not None
        expected = read_photo(file, canvas, FULL)
        assert photo.pixels.is_cuda
        assert torch.equal(photo.pixels.cpu(), expected.pixels)
        assert photo.is_whole
        assert (photo.width, photo.height) == (expected.width, expected.height)


@pytest.mark.gpu
def test_small_batches_stay_on_the_cpu(decoder: GpuJpegDecoder, canvas: Canvas) -> None:
    assert gpu_jpeg_decoder(decoder.device, canvas, FULL, "auto", 15) is None
    assert gpu_jpeg_decoder(decoder.device, canvas, FULL, "auto", 16) is not None


@pytest.mark.gpu
def test_pixels_are_those_of_the_cpu(decoder: GpuJpegDecoder, canvas: Canvas) -> None:
    _assert_like_the_cpu(decoder, canvas, [*SMALL, TALL])
    large = list(_sound_files([(640, 480), (777, 1031)], noise=2))
    _assert_like_the_cpu(decoder, canvas, large)
    for file in large[:3]:
        _assert_like_the_cpu(decoder, canvas, [file])


@pytest.mark.gpu
def test_photographs_are_turned_upright(decoder: GpuJpegDecoder, canvas: Canvas) -> None:
    files = [jpeg_with_exif(BASELINE, exif(orientation)) for orientation in range(10)]
    _assert_like_the_cpu(decoder, canvas, files)


@pytest.mark.gpu
def test_damaged_files_are_refused_and_others_of_the_batch_are_not(
    decoder: GpuJpegDecoder, canvas: Canvas
) -> None:
    chance = random.Random(28)
    damaged = [_damaged(chance.choice([*SMALL, *LARGE]), chance) for _ in range(400)]
    for begin in range(0, len(damaged), 50):
        batch = _coded(decoder, [BASELINE, *damaged[begin : begin + 50]])
        for one, photo in zip(batch, decoder.decode(batch), strict=True):
            file = np.asarray(one.file).tobytes()
            assert (photo is not None) == _is_sound(file)
            if photo is not None:
                assert torch.equal(photo.pixels.cpu(), read_photo(file, canvas, FULL).pixels)


def _damaged(file: bytes, chance: random.Random) -> bytes:
    """Flip a bit of the coded data, without a new marker."""
    at = chance.randrange(_begin_of_data(file), len(file) - 2)
    flipped = file[at] ^ 1 << chance.randrange(8)
    return file if 0xFF in (file[at - 1], file[at], flipped) else _with_byte(file, at, flipped)


@pytest.mark.gpu
@pytest.mark.usefixtures("decoder")
def test_detect_files_finds_the_same(canvas: Canvas, artifact_path: Path, tmp_path: Path) -> None:
    if canvas == COLORS:
        artifact_path = tmp_path / "colors.pt"
        save_artifact(RedAndBlue(), artifact_path, parity=False)
    artifact = load_artifact(artifact_path, "cuda")
    begin = _begin_of_data(BASELINE) + 50
    sources: list[str | Path | bytes] = [
        _encode(640, 480),
        BASELINE[:begin] + BASELINE[begin + 10 :],
        b"no image",
        _encode(101, 67, progressive=True),
        *SMALL,
        jpeg_with_exif(_encode(300, 200), exif(6)),
        BASELINE[:-200],
    ]
    by_gpu, by_cpu = (
        list(artifact.detect_files(sources, 7, 2, 0.03, decode=decode)) for decode in ("gpu", "cpu")
    )
    for found, expected in zip(by_gpu, by_cpu, strict=True):
        assert type(found) is type(expected)
        if isinstance(found, InputError) or isinstance(expected, InputError):
            assert str(found) == str(expected)
            continue
        assert (found.width, found.height) == (expected.width, expected.height)
        torch.testing.assert_close(found.boxes, expected.boxes)
