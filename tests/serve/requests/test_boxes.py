"""Reading of box tensors from JSON."""

import json
import math
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from lensbox.serve.requests import boxes as boxes_module
from lensbox.serve.requests import json_body
from lensbox.serve.requests.boxes import read_loss_request
from lensbox.serve.requests.errors import ApiError

_BOX = [1, 2, 3.5, 4]
_IMAGES = [[_BOX] * 3, [_BOX]]


def _weighted(weights: Any) -> bytes:
    return json.dumps({"predictions": _IMAGES, "targets": _IMAGES, "weights": weights}).encode()


def _body(predictions: Any, targets: Any = None) -> bytes:
    return json.dumps(
        {"predictions": predictions, "targets": predictions if targets is None else targets}
    ).encode()


@pytest.mark.parametrize(
    ("boxes", "shape"),
    [
        ([], [0, 4]),
        ([_BOX], [1, 4]),
        ([_BOX] * 3, [3, 4]),
        ([[_BOX] * 3], [1, 3, 4]),
        ([[_BOX], [_BOX]], [2, 1, 4]),
        ([[], []], [2, 0, 4]),
    ],
)
def test_reads_flat_and_batched_boxes(boxes: list[Any], shape: list[int]) -> None:
    pairs = read_loss_request(_body(boxes), max_boxes=10).pairs
    assert pairs.sizes == (None if len(shape) == 2 else (shape[1],) * shape[0])
    assert not pairs.is_ragged
    assert pairs.predictions.dtype == pairs.targets.dtype == torch.float64
    for tensor in (pairs.predictions, pairs.targets):
        assert list(tensor.shape) == [math.prod(shape[:-1]), 4]
        assert tensor.flatten().tolist() == _BOX * len(tensor)


def test_predictions_and_targets_are_not_mixed_up() -> None:
    pairs = read_loss_request(_body([[1, 2, 10**30, 4]], [[5, 6, 7, 8]]), max_boxes=1).pairs
    assert pairs.predictions.tolist() == [[1, 2, 1e30, 4]]
    assert pairs.targets.tolist() == [[5, 6, 7, 8]]


def test_concatenates_ragged_boxes() -> None:
    boxes = [[float(box)] * 4 for box in range(1, 10)]
    predictions: list[Any] = [boxes[:3], [], boxes[3:5]]
    targets: list[Any] = [boxes[5:7], [], boxes[7:9]]
    pairs = read_loss_request(_body(predictions, targets), max_boxes=9).pairs
    assert (pairs.sizes, pairs.is_ragged, pairs.weights) == ((3, 0, 2), True, None)
    assert pairs.predictions[:, 0].tolist() == [1, 2, 3, 4, 5]
    assert pairs.targets[:, 3].tolist() == [6, 7, 0, 8, 9]  # no target: padding


@pytest.mark.parametrize(
    ("targets", "weights", "expected"),
    [
        ([_BOX, [0, 0, 0, 0], _BOX], [0.5, 2, 3], [0.5, 0, 3]),
        ([[_BOX, _BOX], [_BOX]], [2, 3], [2, 2, 0, 3]),
        ([[_BOX, _BOX], [_BOX]], [[2, 3], [4]], [2, 3, 0, 4]),
        ([[_BOX, _BOX, [0, 0, 0, 0]], []], [[1, 1, 1], []], [1, 1, 0, 0]),
        ([[], []], [[], []], [0, 0, 0, 0]),
        ([[], []], [7, 8], [0, 0, 0, 0]),
    ],
)
def test_expands_weights_of_boxes_or_images(
    targets: list[Any], weights: list[Any], expected: list[float]
) -> None:
    """Padding has a weight of 0."""
    predictions: list[Any] = [_BOX] * 3 if targets[0] == _BOX else [[_BOX] * 3, [_BOX]]
    question = {"predictions": predictions, "targets": targets, "weights": weights}
    found = read_loss_request(json.dumps(question).encode(), max_boxes=10).pairs.weights
    assert found is not None
    assert found.tolist() == expected


_INVALID = [
    (b"[]", "the body must be an object, got []"),
    (b'{"predictions": []}', "targets must be given, got the keys ['predictions']"),
    (
        b'{"predictions": [], "targets": [], "weight": []}',
        "unknown key of the body 'weight' (known: predictions",
    ),
    (b'{"predictions": [], "targets": [], "gradient": 1}', "gradient must be a valid boolean, got 1"),
    (_body("abc"), "predictions must be a valid array, got 'abc'"),
    (_body([1, 2, 3, 4]), "predictions[0] must be a valid array, got 1"),
    (_body([_BOX, [1, 2, 3]]), "predictions[1] must have at least 4 items after validation, not 3, got [1"),
    (_body([_BOX, [_BOX]]), "predictions[1][0] must be a valid number, got [1, 2, 3.5, 4]"),
    (_body([_BOX], [[1, 2, "3", 4]]), "targets[0][2] must be a valid number, got '3'"),
    (_body([[1, 2, 3, True]]), "predictions[0][3] must be a valid number, got True"),
    (_body([[math.nan, 0, 1, 1]]), "predictions[0][0] must be a finite number, got nan"),
    (b'{"predictions": [[1e999, 0, 1, 1]], "targets": []}', "predictions[0][0] must be a finite number"),
    (_body([[10**400, 0, 1, 1]]), "predictions[0][0] must be a finite number, got 1000"),
    (_body([_BOX], [[_BOX]]), "must have the same shape, got [1, 4] and [1, 1, 4]"),
    (_body([_BOX], [_BOX] * 2), "must have the same shape, got [1, 4] and [2, 4]"),
    (_body([_BOX], _IMAGES), "must have the same shape, got [1, 4] and [2, ragged, 4]"),
    (_body([[_BOX]], _IMAGES), "predictions and targets must have the same number of images, got 1 and 2"),
    (
        _body([[_BOX], [_BOX]], _IMAGES),
        "targets[0] must have at most as many boxes as predictions[0], which has 1, got 3",
    ),
    (_weighted([1]), "weights must have as many items as targets has images, 2, got 1"),
    (_weighted([[1]]), "weights must have as many items as targets has images, 2, got 1"),
    (_weighted([[1], [1]]), "weights[0] must have as many items as targets[0], 3, got 1"),
    (_weighted(1), "weights must be a valid array, got 1"),
    (_weighted([[1, 1, 1], 1]), "weights[1] must be a valid array, got 1"),
    (_weighted([1, -0.5]), "weights[1] must be greater than or equal to 0, got -0.5"),
    (_weighted([1e10, 1]), "weights[0] must be less than or equal to 1000000000, got 10000000000.0"),
    (
        b'{"predictions": [[0, 0, 1, 1]], "targets": [[0, 0, 1, 1]], "weights": [[1]]}',
        "weights must be [N], as targets has no images, got [[1.0]]",
    ),
    (b'{"predictions": [' + b"{" * 65, "must have at most 64 objects, got 66"),
    (b'{"a":0,' + b'"":0,' * 40 + b'"b":0}', "must have at most 64 quotes, got 84"),
]
_NO_JSON = [
    (b"not json", "the body must be JSON: expected ident at line 1 column 2"),
    (b"\xff\xfe\xfa", "the body must be JSON: "),
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


def test_reports_one_error_for_many_wrong_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """One error per number would take seconds."""
    seen: list[ValidationError] = []

    def fault_message(error: ValidationError, *_: Any) -> str:
        seen.append(error)
        return ""

    monkeypatch.setattr(json_body, "fault_message", fault_message)
    with pytest.raises(ApiError):
        read_loss_request(_body([[True] * 4] * 1000), max_boxes=1000)
    assert seen[0].error_count() == 4  # two fields, each as [N][4] and as [B][N][4]


@pytest.mark.parametrize(
    ("boxes", "most", "message"),
    [
        ([_BOX] * 4, 4, "predictions must have at most 3 boxes, got 4"),
        ([[_BOX] * 2] * 2, 4, "predictions must have at most 3 boxes, got 4"),
        ([[]] * 4, 4, "predictions must have at most 3 images, got 4"),
        ([[_BOX]] * 10, 10, "predictions must have at most 9 images, got 10"),
    ],
)
def test_limits_the_number_of_boxes_and_images(boxes: list[Any], most: int, message: str) -> None:
    read_loss_request(_body(boxes), max_boxes=most)
    with pytest.raises(ApiError) as caught:
        read_loss_request(_body(boxes), max_boxes=most - 1)
    assert (caught.value.status, caught.value.code) == (413, "too_many_boxes")
    assert caught.value.message.startswith(message)


def test_limits_the_number_of_per_image_losses() -> None:
    images: list[Any] = [[]] * 1025
    body = json.dumps({"predictions": images, "targets": images, "per_image": True}).encode()
    with pytest.raises(ApiError, match="per_image must be of at most 1024 images, got 1025"):
        read_loss_request(body, max_boxes=2000)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b'{"predictions":[' + b"[]," * 100 + b"[]]}", "must have at most 53 arrays, got 102"),
        (b'{"predictions":[' + b"1," * 200 + b"1]}", "must have at most 124 commas, got 200"),
        (b"{" + b'"a":1,' * 200 + b'"a":1}', "must have at most 124 commas, got 200"),
    ],
)
def test_oversized_content_is_not_parsed(body: bytes, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boxes_module, "read_json", None)
    with pytest.raises(ApiError) as caught:
        read_loss_request(body, max_boxes=10)
    assert (caught.value.status, caught.value.code) == (413, "too_many_boxes")
    assert caught.value.message.endswith(found)
