"""`lensbox bench photo` in its tiniest form: the reference, the checks, the photographs, a run."""

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch
from picture_files import encoded

from lensbox.artifact.metadata import Canvas
from lensbox.bench.photo import benchmark, check, reference
from lensbox.bench.photo.photographs import jpeg_photograph, photo_pixels, small_photographs
from lensbox.bench.runner import WrongAnswerError
from lensbox.ops import letterbox
from lensbox.runtime.detection import Detections

CANVAS = Canvas(256, 256)
SMALL = (1040, 784)  # decoded at half of the sides


def found(*faces: tuple[float, float, float, float, float]) -> Detections:
    """Return detections with these boxes and scores."""
    values = torch.tensor(faces).view(-1, 5)
    return Detections(values[:, :4], values[:, 4])


@pytest.mark.parametrize(("width", "height"), [(512, 600), (256, 256), (4000, 3), (1, 777)])
@pytest.mark.parametrize("canvas", [CANVAS, Canvas(37, 91, fill=9)])
def test_the_reference_agrees_with_the_op(width: int, height: int, canvas: Canvas) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    expected = reference.canvas_of(PIL.Image.fromarray(pixels), canvas)
    image = torch.from_numpy(pixels).permute(2, 0, 1)
    ours = letterbox([image], canvas.height, canvas.width, 1, canvas.fill)
    check.require_same_bytes("canvas", ours.canvases[0], expected)
    boxes = torch.tensor([[0.0, 0.0, canvas.width, canvas.height]])
    assert reference.restored(boxes, (width, height), canvas).tolist() == [[0, 0, width, height]]


@pytest.mark.parametrize(
    ("size", "reduction"), [((4000, 3000), 4), ((1920, 1080), 2), (SMALL, 2), ((504, 504), 1)]
)
def test_the_reference_decodes_at_the_scale_of_the_rule(size: tuple[int, int], reduction: int) -> None:
    decoded = reference.decoded(encoded(PIL.Image.new("RGB", size)), CANVAS)
    assert decoded.size == tuple(side // reduction for side in size)
    assert decoded.mode == "L"


def test_wrong_canvases_are_caught() -> None:
    expected = torch.zeros(1, 4, 4, dtype=torch.uint8)
    off_by_one = expected.clone()
    off_by_one[0, 2, 3] = 1
    check.require_same_bytes("canvas", expected.clone(), expected)
    check.require_near("canvas", off_by_one, expected, mean=0.1, most=1)
    with pytest.raises(WrongAnswerError, match="the canvas differs from Pillow's in 1 of 16 bytes"):
        check.require_same_bytes("canvas", off_by_one, expected)
    for mean, most in ((0.01, 1.0), (1.0, 0.5)):
        with pytest.raises(WrongAnswerError, match="gray levels on average and 1 at most"):
            check.require_near("canvas", off_by_one, expected, mean, most)


def test_lost_and_invented_faces_are_caught() -> None:
    face, hardly = (10.0, 10.0, 50.0, 60.0, 0.9), (100.0, 100.0, 120.0, 120.0, 0.6)
    check.require_same_faces(found(face, hardly), found((12.0, 11.0, 52.0, 62.0, 0.65)))
    check.require_same_faces(found(), found(hardly))
    message = r"a face at \(10, 10, 50, 60\) px with a score of 0.90 is not found"
    with pytest.raises(WrongAnswerError, match=message):
        check.require_same_faces(found(hardly), found(face))
    with pytest.raises(WrongAnswerError, match="was not expected"):
        check.require_same_faces(found(face), found())


def opened(file: bytes) -> Any:
    return PIL.Image.open(io.BytesIO(file))


def test_photographs_are_of_their_size_and_kind() -> None:
    assert opened(jpeg_photograph(320, 240).file).size == (320, 240)
    assert jpeg_photograph(320, 240) == jpeg_photograph(320, 240)
    expected = np.asarray(PIL.Image.fromarray(photo_pixels(320, 240)).convert("L"), np.int16)
    levels = np.asarray(opened(jpeg_photograph(320, 240).file).convert("L"), np.int16)
    assert np.abs(levels - expected).mean() < 6
    assert len(set(small_photographs(64, 5))) == 5
    bits = 8 * len(jpeg_photograph(1920, 1080).file) / (1920 * 1080)
    assert 1.5 < bits < 3  # per pixel, as files of cameras


def test_a_quick_run_writes_its_files(quick_run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "LARGE", SMALL)
    monkeypatch.setattr(benchmark, "FULL_HD", (800, 600))
    monkeypatch.setitem(benchmark.QUICK_STREAM_LENGTH, "cpu", 4)
    monkeypatch.setattr(benchmark, "copy_bandwidth", lambda device: 1e10)
    written = quick_run("photo", benchmark)
    assert "WRONG" not in written.printed
    assert "failed" not in written.printed
    ways = {row["way"] for row in written.rows if row["median_us"]}
    assert ways >= {"decode", "letterbox", "detect", "restore", "lensbox", "lensbox, planes", "Pillow"}
    assert "lensbox, batches of 32" in ways
    assert "RGB frame 800 x 600 to a canvas: Pillow / ours" in written.markdown
