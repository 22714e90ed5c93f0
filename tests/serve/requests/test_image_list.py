"""Bodies of several images."""

import base64
import json
from typing import Any

import pytest

from lensbox.serve.requests.errors import ApiError
from lensbox.serve.requests.image_list import DetectParameters, has_image_list, read_image_list

_NONE = DetectParameters.model_validate({})
_WITH_IOU = DetectParameters.model_validate({"iou_threshold": 0.5})
_FORM = "multipart/form-data; boundary=limit"
_JSON = "application/json"


def _part(name: str, content: bytes) -> bytes:
    return f'--limit\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'.encode() + content + b"\r\n"


def _data(content: bytes) -> dict[str, str]:
    return {"data": base64.b64encode(content).decode()}


def _read(question: Any, parameters: DetectParameters = _NONE, max_images: int = 3) -> Any:
    body = question if isinstance(question, bytes) else json.dumps(question).encode()
    return read_image_list(body, _JSON, parameters, max_images)


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("application/json", True),
        ("Application/JSON;charset=utf-8", True),
        ("Multipart/Form-Data; boundary=x", True),
        ("multipart/mixed; boundary=x", False),
        ("image/png", False),
        ("application/x-www-form-urlencoded", False),
        ("", False),
    ],
)
def test_media_types_of_several_images(content_type: str, expected: bool) -> None:
    assert has_image_list(content_type) is expected


@pytest.mark.parametrize("count", [1, 2, 3])
def test_reads_images_of_a_form(count: int) -> None:
    contents = [b"", b"two", b"three"][:count]
    body = b"".join(_part("image", content) for content in contents) + b"--limit--"
    assert read_image_list(body, _FORM, _NONE, 3) == (contents, _NONE, count > 1)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (_part("photo", b"x") + b"--limit--", "must be named 'image' or 'file', got 'photo'"),
        (
            _part("image", b"x") + _part("score_threshold", b"0.5") + b"--limit--",
            "got 'score_threshold'; thresholds are query parameters",
        ),
        (
            _part("image", b"x") + _part("file", b"x") + b"--limit--",
            "one field 'image' or 'file', or several",
        ),
        (_part("file", b"x") * 2 + b"--limit--", "got ['file', 'file']"),
        (b"--limit--\r\n", "one field 'image' or 'file', or several 'image', got []"),
    ],
)
def test_rejects_wrong_form_fields(body: bytes, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        read_image_list(body, _FORM, _NONE, 3)
    assert (caught.value.status, caught.value.code) == (422, "invalid_form")
    assert message in caught.value.message


def test_reads_images_and_parameters_of_json() -> None:
    question = {
        "images": [_data(b"\x00\xffone"), {"data": ""}],
        "score_threshold": 0.25,
        "orientation": "stored",
    }
    sources, parameters, is_many = _read(question, _WITH_IOU)
    assert sources == [b"\x00\xffone", b""]
    assert parameters == DetectParameters(
        score_threshold=0.25, iou_threshold=0.5, orientation="stored", tiles=None
    )
    assert is_many
    assert _read({"images": [_data(b"x")], "score_threshold": None}).is_many


@pytest.mark.parametrize("text", ["no base64!", "YQ", "YQ=", "YQ==\n", "Y-_w", "ü", "=" * 1000])
def test_reports_invalid_base64_per_image(text: str) -> None:
    good, bad = _read({"images": [_data(b"good"), {"data": text}]}).sources
    assert good == b"good"
    assert (bad.status, bad.code) == (400, "undecodable_image")
    assert bad.message.startswith("data of images[1] must be base64: ")


_NO_JSON = [
    (b"not json", "the body must be JSON: expected ident"),
    (b"[" * 100_000, "the body must be JSON: recursion limit exceeded"),
    ({"images": [_data(b"x")], "\ud800": 1}, "the body must be JSON: "),  # half of a surrogate pair
]
_TOO_MUCH = [
    (b'{"a":' * 100_000, "at most 304 objects, got 100000"),
    (b"[]" * 100_000, "at most 304 arrays, got 100000"),
    (b'{"images":[' + b"0," * 100_000 + b"0]}", "at most 304 commas, got 100000"),
    (b'{"":"' * 220, "at most 640 quotes, got 660"),
    ({"images": [_data(b"x")] * 4}, "images must be at most 3, got 4"),
]
_INVALID = [
    (b"[]", "the body must be an object, got []"),
    ({"image": {}}, "images must be given, got the keys ['image']"),
    ({"images": {}}, "images must be a valid array, got {}"),
    ({"images": []}, "images must have at least 1 item after validation, not 0, got []"),
    ({"images": [{}]}, "images[0].data must be given, got the keys []"),
    ({"images": [{**_data(b"x"), "url": "x"}]}, "unknown key of the body 'images[0].url', got the value 'x'"),
    ({"images": [{"data": 7}]}, "images[0].data must be a valid string, got 7"),
    (
        {"images": [_data(b"x")], "score_treshold": 0.5},
        "unknown key of the body 'score_treshold' (known: score_threshold, iou_threshold,",
    ),
    (
        {"images": [_data(b"x")], "score_threshold": 1.5},
        "score_threshold must be less than or equal to 1, got 1.5",
    ),
]
_TWICE = (
    {"images": [_data(b"x")], "iou_threshold": 0.5},
    "iou_threshold must be in the query or in the body, got both",
)


@pytest.mark.parametrize(
    ("status", "code", "body", "message"),
    [
        *((422, "invalid_json", *case) for case in _NO_JSON),
        *((413, "too_many_images", *case) for case in _TOO_MUCH),
        *((422, "invalid_images", *case) for case in _INVALID),
        (422, "invalid_parameter", *_TWICE),
    ],
)
def test_rejects_other_json(status: int, code: str, body: Any, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        _read(body, _WITH_IOU)
    assert (caught.value.status, caught.value.code) == (status, code)
    assert message in caught.value.message
    assert len(caught.value.message) < 300
