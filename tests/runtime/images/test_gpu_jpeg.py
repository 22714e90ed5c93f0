"""Which JPEG files go to the GPU's decoder, and whether it gives the CPU's pixels."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
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
    is_well_formed,
    sound_files,
    with_flipped_bit,
)
from picture_files import exif, jpeg_with_exif
from small_detectors import RedAndBlue

import lensbox.ops  # noqa: F401 (registers lensbox_jpeg)
from lensbox.common.errors import DeviceError, InputError
from lensbox.common.fields import Orientation
from lensbox.export import save_artifact
from lensbox.runtime import Canvas, Photo, Reading, load_artifact, read_photo
from lensbox.runtime.images.core import exif_orientation
from lensbox.runtime.images.gpu_jpeg import (
    CodedPhoto,
    coded_photo,
    coded_photos,
    decoded_photos,
    decoded_pixels,
    decodes_on_gpu,
    file_tensor,
)
from lensbox.runtime.images.orientation import upright_size

GRAY = Canvas(256, 256, 1)
COLORS = Canvas(256, 256, 3)
FULL = Reading(jpeg_oversampling=0)
CPU = torch.device("cpu")


def test_the_cpu_decodes_long_codes_that_walks_do_not_look_up() -> None:
    assert (read_photo(LONG_CODES, GRAY, FULL).pixels == 128).all()


@pytest.mark.parametrize("orientation", ["exif", "stored"])
def test_header_is_the_one_that_the_op_finds(orientation: Orientation) -> None:
    """The service checks headers without the op library."""
    reading = replace(Reading(), orientation=orientation)
    other_app1 = b"\xff\xe1\0\x0ahttp://x"
    files = [BASELINE, BASELINE[:2] + other_app1 + jpeg_with_exif(BASELINE, exif(6))[2:]]
    files += [jpeg_with_exif(file, exif(turn)) for turn in range(10) for file in files[:2]]
    headers = torch.ops.lensbox_jpeg.headers([file_tensor(memoryview(file)) for file in files]).tolist()
    for file, (width, height, begin, end) in zip(files, headers, strict=True):
        turn = exif_orientation(file[begin:end]) if orientation == "exif" else 1
        found = coded_photo(file, GRAY, reading)
        assert found is not None
        assert found.file == file
        assert (found.orientation, found.width, found.height) == (turn, *upright_size((width, height), turn))


def test_the_ops_get_the_files_of_front_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[list[bytes]] = []

    def decode(files: list[torch.Tensor], device: torch.device) -> list[torch.Tensor]:
        got.append([bytes(file.numpy()) for file in files])
        return [torch.empty(0, dtype=torch.uint8), *(len(files) - 1) * [torch.zeros(1, 67, 101).byte()]]

    monkeypatch.setattr(torch.ops, "lensbox_jpeg", SimpleNamespace(decode_luma=decode))
    turned = jpeg_with_exif(BASELINE, exif(6))
    contents: list[bytes | bytearray] = [BASELINE, bytearray(BASELINE), turned]
    files = [coded_photo(content, GRAY, FULL) for content in contents]
    coded = [file for file in files if file is not None]
    photos = decoded_photos(decoded_pixels(coded, CPU, GRAY), coded)
    assert got == [contents]
    assert [photo and (photo.width, photo.height) for photo in photos] == [None, (101, 67), (67, 101)]


def test_files_without_pixels_or_above_512_kib_are_not_handed_over() -> None:
    """A front end looks at sizes without the op library, so both must refuse the same ones."""
    frame = BASELINE.index(b"\xff\xc0") + 5
    assert coded_photo(BASELINE[:frame] + bytes(4) + BASELINE[frame + 4 :], GRAY, FULL) is None
    largest = BASELINE.ljust(1 << 19, b"\0")
    for file, is_taken in ((largest, True), (largest + b"\0", False)):
        assert (coded_photo(file, GRAY, FULL) is not None) == is_taken
        assert is_accepted(file) == is_taken


def test_files_are_read_from_paths_and_from_memory(tmp_path: Path) -> None:
    contents = [
        BASELINE,
        RESTARTED,
        jpeg_with_exif(BASELINE, exif(6)),
        encode(101, 67, progressive=True),
        encode(1100, 1100),  # read at half its size
        encode(1100, 1100, noise=120, quality=100),  # larger than 512 KiB
        BASELINE[:-300],
        b"",
    ]
    paths = [tmp_path / f"{index} ä.jpg" for index in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    others = [tmp_path, tmp_path / "missing.jpg", tmp_path / "\udcff.jpg"]
    found = coded_photos([*paths, *others, *contents], GRAY, Reading())
    assert [one is not None for one in found] == [*3 * [True], *8 * [False], *3 * [True], *5 * [False]]
    for index, content in enumerate(contents[:3]):
        for photo, source in ((found[index], paths[index]), (found[11 + index], content)):
            assert photo is not None
            assert np.asarray(photo.file).tobytes() == content
            assert photo.source == source
            expected = (6, 67, 101) if index == 2 else (1, 101, 67)
            assert (photo.orientation, photo.width, photo.height) == expected


def test_who_decodes() -> None:
    assert not decodes_on_gpu(CPU, "auto", 512)
    assert not decodes_on_gpu(CPU, "cpu", 512)
    with pytest.raises(DeviceError, match="decode must be 'auto' or 'cpu' here, got 'gpu': the detector"):
        decodes_on_gpu(CPU, "gpu", 1)
    with pytest.raises(ValueError, match="decode must be 'auto', 'cpu' or 'gpu', got 'nvjpeg'"):
        decodes_on_gpu(CPU, "nvjpeg", 1)  # type: ignore[arg-type]


@pytest.fixture(params=[GRAY, COLORS], ids=["gray", "colors"])
def canvas(request: pytest.FixtureRequest) -> Canvas:
    found: Canvas = request.param
    return found


@pytest.fixture
def gpu() -> torch.device:
    device = torch.device("cuda", 0)
    try:
        decodes_on_gpu(device, "gpu", 32)
    except DeviceError as error:
        pytest.skip(str(error))
    return device


def _decoded(gpu: torch.device, canvas: Canvas, coded: Sequence[CodedPhoto]) -> list[Photo | None]:
    return decoded_photos(decoded_pixels(coded, gpu, canvas), coded)


def _coded(canvas: Canvas, files: list[bytes]) -> list[CodedPhoto]:
    return [one for one in coded_photos(files, canvas, FULL) if one is not None]


def _assert_like_the_cpu(gpu: torch.device, canvas: Canvas, files: list[bytes]) -> None:
    for file, photo in zip(files, _decoded(gpu, canvas, _coded(canvas, files)), strict=True):
        assert photo is not None
        expected = read_photo(file, canvas, FULL)
        assert photo.pixels.is_cuda
        assert torch.equal(photo.pixels.cpu(), expected.pixels)
        assert photo.is_whole
        assert (photo.width, photo.height) == (expected.width, expected.height)


@pytest.mark.gpu
def test_small_batches_stay_on_the_cpu(gpu: torch.device) -> None:
    assert not decodes_on_gpu(gpu, "auto", 15)
    assert decodes_on_gpu(gpu, "auto", 16)


@pytest.mark.gpu
def test_pixels_are_those_of_the_cpu(gpu: torch.device, canvas: Canvas) -> None:
    _assert_like_the_cpu(gpu, canvas, [*SMALL, TALL])
    large = list(sound_files([(640, 480), (777, 1031)], noise=2))
    _assert_like_the_cpu(gpu, canvas, large)
    for file in large[:3]:
        _assert_like_the_cpu(gpu, canvas, [file])


@pytest.mark.gpu
def test_photographs_are_turned_upright(gpu: torch.device, canvas: Canvas) -> None:
    files = [jpeg_with_exif(BASELINE, exif(orientation)) for orientation in range(10)]
    _assert_like_the_cpu(gpu, canvas, files)


@pytest.mark.gpu
def test_damaged_files_are_refused_and_others_of_the_batch_are_not(gpu: torch.device, canvas: Canvas) -> None:
    chance = random.Random(28)
    damaged = [with_flipped_bit(chance.choice([*SMALL, *LARGE]), chance) for _ in range(400)]
    for begin in range(0, len(damaged), 50):
        batch = _coded(canvas, [BASELINE, *damaged[begin : begin + 50]])
        for one, photo in zip(batch, _decoded(gpu, canvas, batch), strict=True):
            file = np.asarray(one.file).tobytes()
            assert (photo is not None) == is_well_formed(file)
            if photo is not None:
                assert torch.equal(photo.pixels.cpu(), read_photo(file, canvas, FULL).pixels)


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
def test_detect_files_finds_the_same(canvas: Canvas, artifact_path: Path, tmp_path: Path) -> None:
    if canvas == COLORS:
        artifact_path = tmp_path / "colors.pt"
        save_artifact(RedAndBlue(), artifact_path)
    artifact = load_artifact(artifact_path, "cuda")
    begin = begin_of_data(BASELINE) + 50
    sources: list[str | Path | bytes] = [
        encode(640, 480),
        BASELINE[:begin] + BASELINE[begin + 10 :],
        b"no image",
        encode(101, 67, progressive=True),
        *SMALL,
        jpeg_with_exif(encode(300, 200), exif(6)),
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
