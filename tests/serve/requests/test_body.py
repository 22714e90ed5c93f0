"""Bad queries and bodies: status and code of the answer, and the words that name argument and value."""

import asyncio
import json
import math
import re
import struct
import tempfile
from typing import Any

import httpx
import pytest
from fastapi import Request
from services import problem_of

from lensbox.serve.errors import ApiError, DeadlineError
from lensbox.serve.requests.body import TimeLimit, image_file

_MOST = 2 << 20  # --max-body-mb of the service
_PART = b'--b\r\nContent-Disposition: form-data; name="image"\r\n\r\nx\r\n'
_BOX = [1, 2, 3.5, 4]


def _raw(content: bytes, kind: str = "", **headers: str) -> dict[str, Any]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return {"content": content, "headers": {"Content-Type": kind, **named}}


def _form(*parts: bytes) -> dict[str, Any]:
    return _raw(b"".join(parts), "multipart/form-data; boundary=b")


def _json(**content: Any) -> dict[str, Any]:
    return {"json": content}


def _boxes(predictions: Any, targets: Any, **more: Any) -> dict[str, Any]:
    return _json(predictions=predictions, targets=targets, **more)


_QUERIES = [
    ("iou_threshold=nan", "iou_threshold must be between 0 and 1, got nan"),
    ("score_threshold=high", "'score_threshold': 'high'.*: Expected `float . null`"),
    ("orientation=up", "Invalid enum value 'up' - at `..orientation"),
    ("tiles=big", "tiles must be auto, SIZE or SIZE,OVERLAP, got 'big'"),
    ("a=1&a=2", "each parameter must be given once, got .* '2'"),
    ("a=1", "unknown field `a` .known: score_threshold, .*"),
]
_DETECT = [
    (_raw(b"a.jpg"), 400, "undecodable_image", "got the text 'a.jpg'; curl sends a file with --data-binary"),
    (_raw(b"hello. no"), 400, "undecodable_image", "GIF, got the text 'hello. no'"),
    (_raw(b"\0\0\0\x1cftypheic"), 415, "unsupported_format", "one of JPEG, PNG, .*, got HEIF"),
    (_raw(b""), 400, "empty_body", "got 0 bytes"),
    ({"files": {"image": b""}}, 400, "empty_image", "got 0 bytes"),
    (_raw(b"x", Content_Encoding="gzip"), 415, "unsupported_encoding", "must be identity, got 'gzip'"),
    (_raw(b"x", Content_Encoding="identity, gzip"), 415, "unsupported_encoding", "got 'identity, gzip'"),
    (_raw(b"x", Content_Encoding="Identity"), 400, "undecodable_image", "one of JPEG"),
    (_raw(bytes(_MOST + 1)), 413, "body_too_large", f"at most {_MOST} bytes, got {_MOST + 1}"),
    ({"content": iter([bytes(_MOST + 1)])}, 413, "body_too_large", f"at most {_MOST} bytes, got at least"),
    (_raw(bytes(_MOST)), 400, "undecodable_image", "one of JPEG"),  # no byte too many
    ({"content": iter([bytes(_MOST)])}, 400, "undecodable_image", "one of JPEG"),
    (_form(_PART, _PART, b"--b--"), 400, "malformed_form", "Maximum number of fields is 1"),
    (_form(_PART.replace(b"image", b"photo"), b"--b--"), 422, "invalid_form", "got .'photo'"),
    (_form(b"--b--\r\n"), 422, "invalid_form", "got none"),
    (_form(_PART), 422, "invalid_form", "got none"),
    (_form(b"--c"), 400, "malformed_form", "must be a valid multipart form"),
    (_raw(_PART, "multipart/form-data"), 400, "malformed_form", "[Bb]oundary"),
    (_raw(b'{"image": "eA=="}', "application/json"), 400, "undecodable_image", "must be one of JPEG"),
]
_LOSS = [
    (_json(predictions=[]), 422, "invalid_boxes", "missing required field `targets`"),
    (_boxes([], [], weights=[]), 422, "invalid_boxes", "`weights` .known: predictions, targets, gradient"),
    (_boxes([_BOX, [1, 2, 3]], []), 422, "invalid_boxes", "box of predictions has 4 numbers, got 3: .1"),
    (_boxes([[1, 2, 3, True]], []), 422, "invalid_boxes", r"got `bool` - at `..predictions\[0\]\[3\]"),
    (_raw(b'{"predictions": [[NaN, 0, 1, 1]], "targets": []}'), 422, "invalid_json", "the body must be JSON"),
    (_raw(b'{"predictions": [[9e999,0,1,1]],"targets":[]}'), 422, "invalid_boxes", "Number out of range"),
    (_boxes([_BOX], [[_BOX]]), 422, "invalid_boxes", "Expected `float`, got `array` - at `..targets"),
    (_boxes([[_BOX]], [[_BOX]] * 2), 422, "invalid_boxes", "same number of images, got 1 and 2"),
    (_boxes([[], []], [[], [_BOX]]), 422, "invalid_boxes", "targets of image 1 .*which are 0, got 1"),
    (_boxes([_BOX] * 101, []), 413, "too_many_boxes", "predictions must have at most 100 boxes.* got 101"),
    (_boxes([[_BOX] * 51, []], [[], []]), 413, "too_many_boxes", "at most 100 boxes.* got 102"),
    (_raw(b" " * ((1 << 20) + 1)), 413, "body_too_large", "at most 1048576 bytes"),
]


@pytest.mark.parametrize(
    ("path", "request_", "status", "code", "words"),
    [
        *((f"/v1/detect?{query}", _raw(b"x"), 422, "invalid_parameter", words) for query, words in _QUERIES),
        *(("/v1/detect", *row) for row in _DETECT),
        *(("/v1/loss", *row) for row in _LOSS),
    ],
)
def test_rejects(
    client: httpx.Client, path: str, request_: dict[str, Any], status: int, code: str, words: str
) -> None:
    error = problem_of(client.post(path, **request_))
    assert error[:2] == (status, code), error
    assert re.search(words, error.message), error
    assert len(error.message) < 300


# --- protocol v2: 400, and the words in `error` ---

_PIXELS = 256 * 256


def _tensor(name: str, datatype: str, shape: list[Any], data: Any = None, **more: Any) -> dict[str, Any]:
    tensor: dict[str, Any] = {"name": name, "datatype": datatype, "shape": shape, "parameters": more}
    return tensor if data is None else {**tensor, "data": data}


def _images(data: Any = None, shape: Any = (1, 1, 256, 256), **more: Any) -> dict[str, Any]:
    return _tensor("images", "UINT8", list(shape), data, **more)


def _score(data: Any = None, datatype: str = "FP32", **more: Any) -> dict[str, Any]:
    return _tensor("score_threshold", datatype, [1], data, **more)


_BINARY = _images(binary_data_size=_PIXELS)
_ZEROS = [0] * _PIXELS
_NAN = struct.pack("<f", float("nan"))

_INFER: list[tuple[Any, str]] = [
    (b"{", "the body must be JSON: "),
    (b'{"x":' + b"[" * 100_000, "the body must be JSON: maximum recursion depth"),
    ({"inputs": [{**_BINARY, "name": "x"}]}, "an input must be named one of images, .* got 'x'"),
    ({"inputs": [_BINARY] * 2}, "the input 'images' must be given once"),
    ({"inputs": [_images([256, *_ZEROS[1:]])]}, "data of 'images': Expected `int` <= 255"),
    ({"inputs": [_images(_ZEROS[1:])]}, r"data of 'images' must be flat, or .* got the shape \[65535\]"),
    ({"inputs": [_images([_ZEROS])]}, r"data of 'images': Expected `array`, got `int` - at `..0..0"),
    ({"inputs": [_images()]}, "must have data or a binary_data_size, got neither"),
    ({"inputs": [_images(_ZEROS, binary_data_size=_PIXELS)]}, "or a binary_data_size, got both"),
    (
        {"inputs": [_images([], shape=[0, 1, 256, 256])]},
        r"Expected `int` >= 1 - at `..inputs\[0\].shape\[0\]",
    ),
    ({"inputs": [_images([], shape=[1, 3, 256, 256])]}, "the shape of 'images' must be .* got .1, 3, 256"),
    ({"inputs": [_images(shape=[10**6, 1, 256, 256], binary_data_size=6)]}, "must be 65536000000 .* got 6"),
    ({"inputs": [_BINARY, _score([0.5], datatype="FP64")]}, "'score_threshold' must be FP32, got 'FP64'"),
    ({"inputs": [_BINARY, _score([1e39])]}, "score_threshold must be between 0 and 1, got inf"),
    ({"inputs": [_score(binary_data_size=4), _images(_ZEROS)], "binary": _NAN}, "score_thr.* 1, got nan"),
    ({"inputs": [_BINARY], "binary": b"short"}, "'images' must have 65536 bytes after the JSON, got 5"),
    ({"inputs": [_BINARY], "binary": bytes(_PIXELS + 1)}, "no more bytes after the JSON, got 1"),
    ({"inputs": [_BINARY], "outputs": [{"name": "x"}]}, "must be named one of boxes, .* got 'x'"),
    (
        {"inputs": [_BINARY], "outputs": [{"name": "boxes", "parameters": {"classification": 3}}]},
        "'boxes' cannot be returned as a classification",
    ),
    ({"inputs": [_images(shared_memory_region="a")]}, "shared_memory_region must be left out"),
    (
        {"inputs": [_BINARY], "outputs": [{"name": "boxes", "parameters": {"shared_memory_region": "a"}}]},
        "shared_memory_region must be left out",
    ),
    ({"inputs": [_BINARY], "length": "9" * 5000}, "Content-Length must be a number of bytes .* got '999"),
]


@pytest.mark.parametrize(("question", "words"), _INFER, ids=[words for _, words in _INFER])
def test_rejects_inference_requests(client: httpx.Client, question: Any, words: str) -> None:
    binary, length = b"", None
    if isinstance(question, dict):
        question = dict(question)
        binary, length = question.pop("binary", bytes(_PIXELS)), question.pop("length", None)
        question = json.dumps(question).encode()
    headers = {"Inference-Header-Content-Length": length or str(len(question))}
    response = client.post("/v2/models/face_detector/infer", content=question + binary, headers=headers)
    assert response.status_code == 400, response.text
    (message,) = response.json().values()
    assert re.search(words, message), message
    assert len(message) < 400


# --- the time limit; `http/test_service.py` has deadlines and hang-ups of clients ---


async def _wait(limit: TimeLimit, *times: float, sooner: float = math.inf) -> str:
    cancelled = asyncio.Event()
    try:
        with limit:
            for seconds in times:
                limit.set(seconds, for_body=seconds < 0.1)
            limit.sooner(sooner)
            try:
                await asyncio.sleep(0.2)
            except asyncio.CancelledError:
                cancelled.set()
                raise
    except ApiError as error:
        assert cancelled.is_set()
        await asyncio.sleep(0)  # the task goes on
        return error.message
    return "in time"


@pytest.mark.parametrize(
    ("client", "times", "sooner", "message"),
    [
        (0.01, [60.0], math.inf, "no answer within 0.01 seconds; try again later"),
        (60.0, [0.02], math.inf, "the body must arrive within 0.02 seconds, got an incomplete body"),
        (0.01, [0.02], math.inf, "no answer within 0.01 seconds; try again later"),
        (60.0, [0.02, 60.0], 0.03, "no answer within 0.03 seconds; try again later"),
        (60.0, [0.02, math.inf], math.inf, "in time"),
    ],
)
def test_the_first_deadline_ends_what_a_request_waits_for(
    client: float, times: list[float], sooner: float, message: str
) -> None:
    assert asyncio.run(_wait(TimeLimit(client), *times, sooner=sooner)) == message


def test_a_hang_up_is_no_deadline() -> None:
    async def hang_up() -> None:
        waiting = asyncio.create_task(_wait(TimeLimit(60.0), 60.0))
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(hang_up())
    assert issubclass(DeadlineError, ApiError)


def test_a_form_needs_no_room_for_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nonexistent")
    content = bytes(2 << 20)
    head = b'--b\r\nContent-Disposition: form-data; name="image"; filename="a.jpg"\r\n\r\n'
    scope = {"type": "http", "headers": [(b"content-type", b"multipart/form-data; boundary=b")]}
    body = head + content + b"\r\n--b--\r\n"
    assert asyncio.run(image_file(Request(scope), body)) == content
