"""Reading of box tensors from JSON."""

import json
import math
from typing import Any

import pytest
import torch

from lensbox.serve.errors import ApiError
from lensbox.serve.requests import boxes as boxes_module
from lensbox.serve.requests.boxes import read_loss_request

_BOX = [1, 2, 3.5, 4]
_IMAGES = [[_BOX] * 3, [_BOX]]


def _body(predictions: Any, targets: Any = None) -> bytes:
    return json.dumps(
        {"predictions": predictions, "targets": predictions if targets is None else targets}
    ).encode()


@pytest.mark.parametrize(
    ("boxes", "shape"),
    [
        ([], [0, 4]),
        ([_BOX] * 3, [3, 4]),
        ([[_BOX] * 3], [1, 3, 4]),
        ([[_BOX], [_BOX]], [2, 1, 4]),
        ([[], []], [2, 0, 4]),
    ],
)
def test_reads_boxes_and_images(boxes: list[Any], shape: list[int]) -> None:
    asked = read_loss_request(_body(boxes), max_boxes=10)
    assert asked.sizes == (None if len(shape) == 2 else (shape[1],) * shape[0])
    assert not asked.gradient
    for tensor in (asked.predictions, asked.targets):
        assert (tensor.dtype, list(tensor.shape)) == (torch.float64, shape)
        assert tensor.flatten().tolist() == _BOX * math.prod(shape[:-1])


def test_predictions_and_targets_are_not_mixed_up() -> None:
    body = json.dumps({"predictions": [[1, 2, 10**30, 4]], "targets": [[5, 6, 7, 8]], "gradient": True})
    asked = read_loss_request(body.encode(), max_boxes=1)
    assert asked.predictions.tolist() == [[1, 2, 1e30, 4]]
    assert asked.targets.tolist() == [[5, 6, 7, 8]]
    assert asked.gradient


def test_pads_images_with_zeros() -> None:
    predictions, targets = [[_BOX] * 3, [], [_BOX] * 2], [[_BOX] * 2, [], [_BOX]]
    asked = read_loss_request(_body(predictions, targets), max_boxes=9)
    assert asked.sizes == (3, 0, 2)
    assert asked.predictions[..., 3].tolist() == [[4, 4, 4], [0, 0, 0], [4, 4, 0]]
    assert asked.targets[..., 3].tolist() == [[4, 4, 0], [0, 0, 0], [4, 0, 0]]


_NESTING = "predictions and targets must be lists of boxes, or lists of images, got "
_INVALID = [
    (b"[]", "the body must be an object, got []"),
    (b'{"predictions": []}', "targets must be given, got the keys ['predictions']"),
    (
        b'{"predictions": [], "targets": [], "weights": []}',
        "unknown key of the body 'weights' (known: predictions, targets, gradient), got the value []",
    ),
    (b'{"predictions": [], "targets": [], "gradient": 1}', "gradient must be a valid boolean, got 1"),
    (_body([_BOX, [1, 2, 3]]), "predictions[1] must have at least 4 items after validation, not 3, got [1"),
    (_body([_BOX, [_BOX]]), "predictions[1][0] must be a valid number, got [1, 2, 3.5, 4]"),
    (_body([[1, 2, 3, True]]), "predictions[0][3] must be a valid number, got True"),
    (_body([[math.nan, 0, 1, 1]]), "predictions[0][0] must be a finite number, got nan"),
    (_body([_BOX], [[_BOX]]), f"{_NESTING}boxes and images"),
    (_body([[_BOX]], []), f"{_NESTING}images and boxes"),
    (_body([[_BOX]], _IMAGES), "predictions and targets must have the same number of images, got 1 and 2"),
    (
        _body(_IMAGES, [[_BOX], [_BOX] * 3]),
        "targets of image 1 must have at most as many boxes as its predictions, which are 1, got 3",
    ),
    (b'{"predictions": [' + b"{" * 65, "must have at most 64 objects, got 66"),
]
_NO_JSON = [
    (b"not json", "the body must be JSON: expected ident at line 1 column 2"),
    (b"[" * 200_000, "the body must be JSON: recursion limit exceeded"),
    (b'{"predictions": [[' + b"9" * 5000 + b", 0, 1, 1]]}", "the body must be JSON: number out of range"),
]


@pytest.mark.parametrize(
    ("code", "body", "message"),
    [*(("invalid_boxes", *case) for case in _INVALID), *(("invalid_json", *case) for case in _NO_JSON)],
)
def test_rejects_other_content(code: str, body: bytes, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        read_loss_request(body, max_boxes=10)
    assert (caught.value.status, caught.value.code) == (422, code)
    assert message in caught.value.message
    assert len(caught.value.message) < 300


@pytest.mark.parametrize(
    ("boxes", "slots"),
    [([_BOX] * 4, 4), ([[_BOX] * 2] * 2, 4), ([[_BOX] * 5, [_BOX], []], 15), ([[]] * 4, 4)],
)
def test_limits_the_number_of_boxes_after_padding(boxes: list[Any], slots: int) -> None:
    read_loss_request(_body(boxes), max_boxes=slots)
    with pytest.raises(ApiError) as caught:
        read_loss_request(_body(boxes), max_boxes=slots - 1)
    assert (caught.value.status, caught.value.code) == (413, "too_many_boxes")
    rule = f"must have at most {slots - 1} boxes after padding each image to the largest"
    assert caught.value.message == f"predictions {rule}, got {slots}"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b'{"predictions":[' + b"[]," * 100 + b"[]]}", "must have at most 42 arrays, got 102"),
        (b'{"predictions":[' + b"1," * 200 + b"1]}", "must have at most 102 commas, got 200"),
    ],
)
def test_oversized_content_is_not_parsed(body: bytes, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boxes_module, "read_json", None)
    with pytest.raises(ApiError) as caught:
        read_loss_request(body, max_boxes=10)
    assert (caught.value.status, caught.value.code) == (413, "too_many_boxes")
    assert caught.value.message.endswith(found)
