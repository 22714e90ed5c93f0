"""Forms and JSON with an image."""

import base64
import json
import textwrap
from typing import Any

import pytest

from lensbox.serve.errors import ApiError
from lensbox.serve.requests.detect_request import DetectParameters, read_detect_request, wraps_image

_NONE = DetectParameters.model_validate({})
_WITH_IOU = DetectParameters.model_validate({"iou_threshold": 0.5})
_FILE = bytes(range(256)) * 2
_BASE64 = base64.b64encode(_FILE).decode()


def _read(question: Any, parameters: DetectParameters = _NONE) -> Any:
    body = question if isinstance(question, bytes) else json.dumps(question).encode()
    return read_detect_request(body, "application/json", parameters)


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("Application/JSON;charset=utf-8", True),
        ("Multipart/Form-Data; boundary=x", True),
        ("multipart/mixed; boundary=x", False),
        ("image/png", False),
        ("", False),
    ],
)
def test_media_types_that_wrap_an_image(content_type: str, expected: bool) -> None:
    assert wraps_image(content_type) is expected


def test_reads_image_and_parameters_of_json() -> None:
    question = {"image": _BASE64, "score_threshold": 0.25, "orientation": "stored", "tiles": None}
    expected = DetectParameters(score_threshold=0.25, iou_threshold=0.5, orientation="stored", tiles=None)
    assert _read(question, _WITH_IOU) == (_FILE, expected)
    assert _read({"image": ""}) == (b"", _NONE)


@pytest.mark.parametrize(
    "text",
    [
        f"data:image/png;base64,{_BASE64}",
        f"DATA:image/svg+xml;charset=utf-8;BASE64,{_BASE64}",
        f"data:;base64,{_BASE64}",
        base64.urlsafe_b64encode(_FILE).decode(),
        base64.urlsafe_b64encode(_FILE).decode().rstrip("="),
        base64.encodebytes(_FILE).decode(),  # a line break after 76 letters
        textwrap.fill(_BASE64, 64).replace("\n", "\r\n"),
    ],
    ids=["URI", "capital URI", "URI without type", "URL-safe", "unpadded", "wrapped", "wrapped, CRLF"],
)
def test_reads_base64_as_browsers_and_shells_write_it(text: str) -> None:
    assert _read({"image": text}) == (_FILE, _NONE)


@pytest.mark.parametrize(
    "text",
    [
        "photo.jpg",
        "YQQQQ",
        "YQ==YQ==",
        "data:image/png,YQ==",
        "Y Q = =",
        "ü",
        "=" * 1000,
    ],
)
def test_names_what_is_not_base64(text: str) -> None:
    with pytest.raises(ApiError) as caught:
        _read({"image": text})
    assert (caught.value.status, caught.value.code) == (400, "undecodable_image")
    rule = "image must be a file in base64, or a data: URI of base64"
    assert caught.value.message.startswith(f"{rule}, got '{text[:12]}")
    assert len(caught.value.message) < 300


_NO_JSON = [
    (b"not json", "the body must be JSON: expected ident"),
    (b"[" * 100_000, "the body must be JSON: recursion limit exceeded"),
    ({"image": _BASE64, "\ud800": 1}, "the body must be JSON: "),  # half of a surrogate pair
]
_INVALID = [
    (b'{"a":' * 100_000, "the JSON of an image must have at most 64 objects, got 100000"),
    (b"[]", "the body must be an object, got []"),
    ({"images": [{"data": _BASE64}]}, "image must be given, got the keys ['images']"),
    ({"image": [_BASE64]}, "image must be a valid string, got ['AAEC"),
    (
        {"image": _BASE64, "score_treshold": 0.5},
        "unknown key of the body 'score_treshold' (known: score_threshold, iou_threshold,",
    ),
    ({"image": _BASE64, "score_threshold": 1.5}, "score_threshold must be less than or equal to 1, got 1.5"),
]
_TWICE = (
    {"image": _BASE64, "iou_threshold": 0.5},
    "iou_threshold must be in the query or in the body, got both",
)


@pytest.mark.parametrize(
    ("code", "body", "message"),
    [
        *(("invalid_json", *case) for case in _NO_JSON),
        *(("invalid_body", *case) for case in _INVALID),
        ("invalid_parameter", *_TWICE),
    ],
)
def test_rejects_other_json(code: str, body: Any, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        _read(body, _WITH_IOU)
    assert (caught.value.status, caught.value.code) == (422, code)
    assert message in caught.value.message
    assert len(caught.value.message) < 300
