"""JSON to box tensors."""

import json
import math
from typing import Any

import pytest
import torch

from lensbox.serve.requests.boxes import read_loss_request
from lensbox.serve.requests.errors import ApiError

_BOX = [1, 2, 3.5, 4]


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
def test_shapes(boxes: list[Any], shape: list[int]) -> None:
    pairs = read_loss_request(_body(boxes), max_boxes=10).pairs
    assert pairs.sizes == (None if len(shape) == 2 else (shape[1],) * shape[0])
    assert not pairs.is_ragged
    assert pairs.predictions.dtype == pairs.targets.dtype == torch.float64
    for tensor in (pairs.predictions, pairs.targets):
        assert list(tensor.shape) == [math.prod(shape[:-1]), 4]
        assert tensor.flatten().tolist() == _BOX * len(tensor)


def test_predictions_and_targets_are_not_mixed_up() -> None:
    pairs = read_loss_request(_body([[1, 2, 3, 4]], [[5, 6, 7, 8]]), max_boxes=1).pairs
    assert pairs.predictions.tolist() == [[1, 2, 3, 4]]
    assert pairs.targets.tolist() == [[5, 6, 7, 8]]


def test_large_integers_are_numbers() -> None:
    pairs = read_loss_request(_body([[0, 0, 10**30, 1]]), max_boxes=1).pairs
    assert pairs.predictions[0, 2] == 1e30


def test_ragged_boxes_lie_end_to_end() -> None:
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
def test_weights_are_of_boxes_or_of_images(
    targets: list[Any], weights: list[Any], expected: list[float]
) -> None:
    """Padding weighs nothing."""
    predictions: list[Any] = [_BOX] * 3 if targets[0] == _BOX else [[_BOX] * 3, [_BOX]]
    question = {"predictions": predictions, "targets": targets, "weights": weights}
    found = read_loss_request(json.dumps(question).encode(), max_boxes=10).pairs.weights
    assert found is not None
    assert found.tolist() == expected


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"weights": [1]}, "weights must have as many numbers as targets has images, 2, got 1"),
        ({"weights": 1}, "weights must be an array [N], [B] or [B][N], got 1"),
        ({"weights": [[1]]}, "weights must be of 2 images, as targets, got 1"),
        ({"weights": [[1], [1]]}, "weights[0] must have as many numbers as targets[0], 2, got 1"),
        ({"weights": [[1, 1], 1]}, "weights[1] must be an array [N], got 1"),
        ({"weights": [1, -0.5]}, "weights[1] must be a number from 0 to 1e9, got -0.5"),
        ({"weights": [True, 1]}, "weights[0] must be a number from 0 to 1e9, got True"),
        ({"weights": [1e10, 1]}, "weights[0] must be a number from 0 to 1e9, got 10000000000.0"),
        ({"weights": [[1, "2"], [1]]}, "weights[0][1] must be a number from 0 to 1e9, got '2'"),
        ({"gradient": 1}, "gradient must be true or false, got 1"),
        ({"per_image": None}, "per_image must be true or false, got None"),
        ({"predictions": [[_BOX]]}, "must be of as many images, got 1 and 2"),
        (
            {"predictions": [[_BOX], [_BOX]]},
            "targets[0] must have at most as many boxes as predictions[0], 1, got 2",
        ),
        ({"predictions": [_BOX] * 3}, "must have the same shape, got [3, 4] and [2, ragged, 4]"),
    ],
)
def test_options_that_do_not_fit(more: dict[str, Any], message: str) -> None:
    question = {"predictions": [[_BOX] * 3, [_BOX]], "targets": [[_BOX, _BOX], [_BOX]], **more}
    with pytest.raises(ApiError) as caught:
        read_loss_request(json.dumps(question).encode(), max_boxes=10)
    assert (caught.value.status, caught.value.code) == (422, "invalid_boxes")
    assert message in caught.value.message


def test_images_that_are_wanted_alone() -> None:
    images: list[Any] = [[]] * 1025
    body = json.dumps({"predictions": images, "targets": images, "per_image": True}).encode()
    with pytest.raises(ApiError, match="per_image must be of at most 1024 images, got 1025"):
        read_loss_request(body, max_boxes=2000)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"not json", "the body must be JSON: Expecting value"),
        (b"{", "the body must be JSON: "),
        (b"\xff\xfe\xfa", "the body must be JSON: "),
        (b'{"predictions": [[NaN, 0, 1, 1]], "targets": [[0, 0, 1, 1]]}', "NaN is not a JSON number"),
        (b'{"predictions": [[-Infinity, 0, 1, 1]], "targets": []}', "-Infinity is not a JSON number"),
        (b"[" * 200_000, "its arrays are nested too deeply"),
        (b'{"predictions": [[' + b"9" * 5000 + b", 0, 1, 1]]}", "the body must be JSON: Exceeds the limit"),
    ],
)
def test_what_is_not_json(body: bytes, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        read_loss_request(body, max_boxes=10)
    assert (caught.value.status, caught.value.code) == (422, "invalid_json")
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"[]", "the body must be an object of predictions and targets, got []"),
        (b"null", "the body must be an object of predictions and targets, got None"),
        (b'{"predictions": []}', "targets must be given, got the keys ['predictions']"),
        (
            b'{"predictions": [], "targets": [], "weight": []}',
            "the body's keys must be predictions, targets, weights, per_image and gradient, got 'weight'",
        ),
        (_body("abc"), "predictions must be an array [N][4] or [B][N][4], got 'abc'"),
        (_body([], {}), "targets must be an array [N][4] or [B][N][4], got {}"),
        (_body([1, 2, 3, 4]), "predictions[0] must be a box [x1, y1, x2, y2], got 1"),
        (_body([_BOX, [1, 2, 3]]), "predictions[1] must be a box [x1, y1, x2, y2], got [1, 2, 3]"),
        (_body([[_BOX], [[1, 2]]]), "predictions[1][0] must be a box [x1, y1, x2, y2], got [1, 2]"),
        (_body([[_BOX], 7]), "predictions[1] must be an array [N][4] or [B][N][4], got 7"),
        (_body([_BOX, [_BOX]]), "predictions[1] must be a box"),
        (_body([[[[1, 2, 3, 4]] * 4]]), "x1 of predictions[0][0] must be a finite number, got [1, 2, 3, 4]"),
        (_body([_BOX], [[1, 2, "3", 4]]), "x2 of targets[0] must be a finite number, got '3'"),
        (_body([[1, 2, 3, True]]), "y2 of predictions[0] must be a finite number, got True"),
        (_body([[1, None, 3, 4]]), "y1 of predictions[0] must be a finite number, got None"),
        (
            b'{"predictions": [[1e999, 0, 1, 1]], "targets": []}',
            "x1 of predictions[0] must be a finite number",
        ),
        (_body([[10**400, 0, 1, 1]]), "x1 of predictions[0] must be a finite number, got 1000"),
        (
            _body([_BOX], [[_BOX]]),
            "predictions and targets must have the same shape, got [1, 4] and [1, 1, 4]",
        ),
        (
            _body([_BOX], [_BOX] * 2),
            "predictions and targets must have the same shape, got [1, 4] and [2, 4]",
        ),
    ],
)
def test_what_is_not_boxes(body: bytes, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        read_loss_request(body, max_boxes=10)
    assert (caught.value.status, caught.value.code) == (422, "invalid_boxes")
    assert message in caught.value.message
    assert len(caught.value.message) < 300


@pytest.mark.parametrize("boxes", [[_BOX] * 4, [[_BOX] * 2] * 2])
def test_number_of_boxes(boxes: list[Any]) -> None:
    assert len(read_loss_request(_body(boxes), max_boxes=4).pairs.predictions) == 4
    with pytest.raises(ApiError) as caught:
        read_loss_request(_body(boxes), max_boxes=3)
    assert (caught.value.status, caught.value.code) == (413, "too_many_boxes")
    assert caught.value.message == "predictions must have at most 3 boxes, got 4"


def test_number_of_images() -> None:
    images: list[Any] = [[]] * 4
    assert read_loss_request(_body(images), max_boxes=4).pairs.sizes == (0, 0, 0, 0)
    with pytest.raises(ApiError) as caught:
        read_loss_request(_body(images), max_boxes=3)
    assert (caught.value.status, caught.value.code) == (413, "too_many_boxes")
    assert caught.value.message == "predictions must have at most 3 images, got 4"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b'{"predictions":[' + b"[]," * 100 + b"[]]}", "must have at most 53 arrays, got 102"),
        (b'{"predictions":[' + b"1," * 200 + b"1]}", "must have at most 124 commas, got 200"),
        (b"{" + b'"a":1,' * 200 + b'"a":1}', "must have at most 124 commas, got 200"),
    ],
)
def test_what_cannot_fit_is_not_parsed(body: bytes, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json, "loads", None)
    with pytest.raises(ApiError) as caught:
        read_loss_request(body, max_boxes=10)
    assert (caught.value.status, caught.value.code) == (413, "too_many_boxes")
    assert caught.value.message.endswith(found)


@pytest.mark.parametrize("boxes", [[_BOX] * 10, [[_BOX] * 5] * 2, [[_BOX]] * 10])
def test_as_many_boxes_as_may_be_are_parsed(boxes: list[Any]) -> None:
    assert len(read_loss_request(_body(boxes), max_boxes=10).pairs.predictions) == 10


@pytest.mark.parametrize(
    ("body", "what"),
    [(b'{"predictions": [' + b"{" * 65, "66 objects"), (b'{"a":0,' + b'"":0,' * 40 + b'"b":0}', "84 quotes")],
)
def test_objects_are_not_parsed_to_be_refused(body: bytes, what: str) -> None:
    with pytest.raises(
        ApiError, match=rf"must have at most 64 {what.split()[1]}, got {what.split()[0]}$"
    ) as caught:
        read_loss_request(body, max_boxes=10)
    assert (caught.value.status, caught.value.code) == (422, "invalid_boxes")
