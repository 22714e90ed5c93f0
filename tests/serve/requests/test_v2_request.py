"""Valid and invalid bodies of inference requests."""

import json
import struct
from typing import Any

import pytest

from lensbox.serve.errors import ApiError
from lensbox.serve.http.v2 import check_answer_size
from lensbox.serve.requests import v2_request
from lensbox.serve.requests.v2_request import (
    InferRequest,
    ModelTensors,
    TensorSpec,
    Wanted,
    header_length,
    read_infer_request,
)

_TENSORS = ModelTensors(
    (
        TensorSpec("images", "UINT8", (-1, 1, 2, 3)),
        TensorSpec("score_threshold", "FP32", (1,)),
        TensorSpec("iou_threshold", "FP32", (1,)),
    ),
    (TensorSpec("boxes", "FP32", (-1, 5, 4)), TensorSpec("counts", "INT32", (-1,))),
)


def _tensor(
    name: str, datatype: str, shape: list[Any], data: Any = None, **parameters: Any
) -> dict[str, Any]:
    tensor: dict[str, Any] = {"name": name, "datatype": datatype, "shape": shape}
    if data is not None:
        tensor["data"] = data
    if parameters:
        tensor["parameters"] = parameters
    return tensor


def _images(data: Any, count: int = 1) -> dict[str, Any]:
    return _tensor("images", "UINT8", [count, 1, 2, 3], data)


def _read(question: Any, binary: bytes = b"") -> InferRequest:
    header = question if isinstance(question, bytes) else json.dumps(question).encode()
    return read_infer_request(bytearray(header + binary), len(header), _TENSORS)


def _refusal(question: Any, binary: bytes = b"") -> str:
    with pytest.raises(ApiError) as caught:
        _read(question, binary)
    assert caught.value.status == 400
    assert caught.value.code in ("invalid_inference", "invalid_json")
    assert len(caught.value.message) < 400
    return caught.value.message


@pytest.mark.parametrize("data", [[1, 2, 3, 4, 5, 255], [[[[1, 2, 3], [4, 5, 255]]]]])
def test_pixels_as_json(data: Any) -> None:
    request = _read({"inputs": [_images(data)]})
    assert request.canvases.tolist() == [[[[1, 2, 3], [4, 5, 255]]]]
    assert request[:1] + request[2:4] == (None, None, None)


def test_binary_tensors_come_in_their_order() -> None:
    inputs = [
        _tensor("iou_threshold", "FP32", [1], binary_data_size=4),
        _tensor("images", "UINT8", [2, 1, 2, 3], binary_data_size=12),
        _tensor("score_threshold", "FP32", [1], binary_data_size=4),
    ]
    binary = struct.pack("<f", 0.3) + bytes(range(12)) + struct.pack("<f", 0.75)
    request = _read({"inputs": inputs, "id": "a"}, binary)
    assert request.canvases.flatten().tolist() == list(range(12))
    assert list(request.canvases.shape) == [2, 1, 2, 3]
    text = _tensor("iou_threshold", "FP32", [1], [0.3])  # rounded to float32, too
    iou_threshold = _read({"inputs": [_images([0] * 6), text]}).iou_threshold
    assert (request.id, request.score_threshold, request.iou_threshold) == ("a", 0.75, iou_threshold)


def test_null_means_omitted() -> None:
    images = {**_images([0] * 6), "parameters": None}
    request = _read({"id": None, "inputs": [images], "outputs": None, "parameters": None})
    assert [wish.output.name for wish in request.wanted] == ["boxes", "counts"]


def _asked(**more: Any) -> dict[str, Any]:
    return {"inputs": [_images([0] * 6)], **more}


def _threshold(*data: Any) -> dict[str, Any]:
    return {"inputs": [_images([0] * 6), _tensor("score_threshold", "FP32", [1], list(data))]}


def _shape(shape: list[Any], data: Any = None, **parameters: Any) -> dict[str, Any]:
    return {"inputs": [_tensor("images", "UINT8", shape, data, **parameters)]}


_PIXELS = "data of 'images' must be"


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (b"{", "the body must be JSON: "),
        (b"[" * 100_000, "the body must be JSON: recursion limit exceeded"),
        (b"[" * 60 + b"]" * 60, "the body must be an object, got [[[[...]]]]"),
        ({}, "inputs must be given, got the keys []"),
        ({"inputs": [{**_images([]), "name": "x"}]}, "must be named one of images, score_threshold, iou"),
        ({"inputs": [_images([0] * 6)] * 2}, "the input 'images' must be given once, got it twice"),
        ({"inputs": [_images([True] + [0] * 5)]}, f"{_PIXELS} integers from 0 to 255, got True"),
        ({"inputs": [_images([256] + [0] * 5)]}, f"{_PIXELS} integers from 0 to 255, got 256"),
        ({"inputs": [_images([0] * 5)]}, f"{_PIXELS} flat, or nested with the shape [1, 1, 2, 3], got an"),
        ({"inputs": [_images(None)]}, "must have data or a binary_data_size, got neither"),
        (_shape([1, 1, 2, 3], [0] * 6, binary_data_size=6), "data or a binary_data_size, got both"),
        (_shape([0, 1, 2, 3], []), "inputs[0].shape[0] must be greater than or equal to 1, got 0"),
        (_shape([True, 1, 2, 3], []), "inputs[0].shape[0] must be a valid integer, got True"),
        (_shape([10**30, 1, 2, 3], binary_data_size=6), "binary_data_size of 'images' must be 6000000"),
        (_shape([1, 1, 2, 3], binary_data_size=6), "must have 6 bytes after the JSON, got 0"),
        (_shape([1, 1, 2, 3], [0] * 6, shared_memory_region="x"), "inputs[0] must be in the body"),
        (_threshold(1e39), "score_threshold must be between 0 and 1, got inf"),
        (_threshold(10**400), "data of 'score_threshold' must be finite numbers, got 1000"),
        (
            _asked(outputs=[{"name": "boxes", "parameters": {"classification": 3}}]),
            "'boxes' cannot be returned as a classification",
        ),
        (_asked(parameters={"timeout": -1}), "timeout must be greater than or equal to 0, got -1"),
    ],
)
def test_rejects_other_content(question: Any, message: str) -> None:
    assert message in _refusal(question)


def test_rejects_binary_thresholds_out_of_range() -> None:
    inputs = [_images([0] * 6), _tensor("score_threshold", "FP32", [1], binary_data_size=4)]
    for value in ("nan", "-0.5", "inf"):
        message = _refusal({"inputs": inputs}, struct.pack("<f", float(value)))
        assert message == f"score_threshold must be between 0 and 1, got {value}"


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b'{"inputs": [' + b"[]," * 1000 + b"[]]}", "arrays"),
        (b"{" + b'"a": 1,' * 4000 + b'"b": 1}', "quotes"),
    ],
)
def test_oversized_content_is_not_parsed(body: bytes, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = _TENSORS._replace(inputs=(TensorSpec("images", "UINT8", (-1, 1, 2, 256)), *_TENSORS.inputs[1:]))
    monkeypatch.setattr(v2_request, "read_json", None)
    with pytest.raises(ApiError, match=what):
        read_infer_request(bytearray(body), len(body), tensors)


def test_nested_pixels_may_have_the_most_arrays() -> None:
    """Rows of a pixel, planes of a row."""
    tensors = _TENSORS._replace(inputs=(TensorSpec("images", "UINT8", (-1, 1, 1, 1)), *_TENSORS.inputs[1:]))
    shape = [500, 1, 1, 1]
    body = json.dumps({"inputs": [_tensor("images", "UINT8", shape, [[[[0]]]] * 500)]}).encode()
    assert list(read_infer_request(bytearray(body), len(body), tensors).canvases.shape) == shape


def test_rejects_invalid_header_lengths() -> None:
    for value in ("-1", "+1", "1_0", "101", "", " ", "²", "9" * 5000, "1e2"):
        with pytest.raises(ApiError, match="must be a number of bytes of the body, from 0 to 100") as caught:
            header_length(value, 100, 1000)
        assert caught.value.status == 400


def test_returns_and_limits_the_header_length() -> None:
    assert header_length("40", 100, 50) == 40
    assert header_length(None, 100, 100) == 100
    for value in ("100", None):
        with pytest.raises(ApiError, match="at most 99 bytes, got 100; send large tensors") as caught:
            header_length(value, 100, 99)
        assert caught.value.status == 413


def test_limits_the_size_of_answers() -> None:
    boxes, counts = _TENSORS.outputs
    check_answer_size((1 << 20) // 20, [Wanted(boxes, False), Wanted(counts, True)])
    check_answer_size((1 << 24) // 21, [Wanted(boxes, True), Wanted(counts, True)])
    for images, binary, most in (((1 << 20) // 20 + 1, False, 52428), ((1 << 24) // 20 + 1, True, 838860)):
        with pytest.raises(
            ApiError, match=f"{most} images with these outputs, got {images} images"
        ) as caught:
            check_answer_size(images, [Wanted(boxes, binary)])
        assert (caught.value.status, caught.value.code) == (413, "answer_too_large")
