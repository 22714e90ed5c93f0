"""What the answers of `lensbox bench photo` are checked against."""

import io
import math

import numpy as np
import PIL.Image
import pytest
import torch
from photo_fixtures import SMALL, found

from lensbox.artifact.metadata import Canvas
from lensbox.bench.check import WrongAnswerError
from lensbox.bench.photo import check, reference
from lensbox.bench.photo.subject import Subject
from lensbox.ops import letterbox

CANVAS = Canvas(256, 256)


@pytest.mark.parametrize(("width", "height"), [(512, 600), (600, 512), (256, 256), (4000, 3), (1, 777)])
@pytest.mark.parametrize("canvas", [CANVAS, Canvas(37, 91, fill=9)])
def test_the_reference_agrees_with_the_op(width: int, height: int, canvas: Canvas) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    expected = reference.canvas_of(PIL.Image.fromarray(pixels), canvas)
    image = torch.from_numpy(pixels).permute(2, 0, 1)
    ours = letterbox([image], canvas.height, canvas.width, 1, canvas.fill)
    check.require_same_bytes("canvas", ours.canvases[0], expected)
    boxes = torch.tensor([[0.0, 0.0, canvas.width, canvas.height]])
    whole = reference.restored(boxes, (width, height), canvas)
    assert whole.tolist() == [[0, 0, width, height]]


@pytest.mark.parametrize("size", [(4000, 3000), (1920, 1080), SMALL, (504, 504), (3000, 4000)])
def test_the_reference_decodes_at_the_scale_of_the_rule(size: tuple[int, int]) -> None:
    buffer = io.BytesIO()
    PIL.Image.new("RGB", size).save(buffer, "JPEG")
    decoded = reference.decoded(buffer.getvalue(), CANVAS)
    reductions = {(4000, 3000): 4, (1920, 1080): 2, SMALL: 2, (504, 504): 1, (3000, 4000): 4}
    assert decoded.size == tuple(side // reductions[size] for side in size)
    assert decoded.mode == "L"


def test_wrong_canvases_are_caught() -> None:
    expected = torch.zeros(1, 4, 4, dtype=torch.uint8)
    off_by_one = expected.clone()
    off_by_one[0, 2, 3] = 1
    check.require_same_bytes("canvas", expected.clone(), expected)
    check.require_near("canvas", off_by_one, expected, mean=0.1, most=1)
    with pytest.raises(WrongAnswerError, match="the canvas differs from Pillow's in 1 of 16 bytes"):
        check.require_same_bytes("canvas", off_by_one, expected)
    with pytest.raises(WrongAnswerError, match=r"not torch\.uint8"):
        check.require_same_bytes("canvas", expected.float(), expected)
    for mean, most in ((0.01, 1.0), (1.0, 0.5)):
        with pytest.raises(WrongAnswerError, match="gray levels on average and 1 at most"):
            check.require_near("canvas", off_by_one, expected, mean, most)


def test_faces_that_are_lost_or_invented_are_caught() -> None:
    face, hardly = (10.0, 10.0, 50.0, 60.0, 0.9), (100.0, 100.0, 120.0, 120.0, 0.6)
    moved = (12.0, 11.0, 52.0, 62.0, 0.65)
    check.require_same_faces(found(face, hardly), found(moved))
    check.require_same_faces(found(), found(hardly))
    with pytest.raises(
        WrongAnswerError, match=r"a face at \(10, 10, 50, 60\) px with a score of 0.90 is not found"
    ):
        check.require_same_faces(found(hardly), found(face))
    with pytest.raises(WrongAnswerError, match="was not expected"):
        check.require_same_faces(found(face), found())


def test_detections_that_move_are_caught(subject: Subject) -> None:
    face = (10.0, 10.0, 50.0, 60.0, 0.9)
    check.require_equal_detections(found(face), found(face), subject)
    for other, message in (
        (found(), "0 faces are found, 1 were expected"),
        (found((10.0, 10.1, 50.0, 60.0, 0.9)), "boxes differ by up to 0.1"),
        (found((10.0, 10.0, 50.0, 60.0, 0.8)), "scores differ by up to 0.1"),
        (found((math.nan, 10.0, 50.0, 60.0, 0.9)), "boxes differ by up to nan"),
    ):
        with pytest.raises(WrongAnswerError, match=message):
            check.require_equal_detections(other, found(face), subject)
