"""Multipart bodies."""

import pytest

from lensbox.serve.errors import ApiError
from lensbox.serve.form import image_from_form, is_form

_TYPE = "multipart/form-data; boundary=limit"


def _part(name: str, content: bytes, more: bytes = b"") -> bytes:
    header = f'--limit\r\nContent-Disposition: form-data; name="{name}"'.encode()
    return header + more + b"\r\n\r\n" + content + b"\r\n"


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        (None, False),
        ("", False),
        ("image/png", False),
        ("multipart/mixed; boundary=x", False),
        ("multipart/form-data", True),
        ("Multipart/Form-Data; boundary=x", True),
    ],
)
def test_is_form(content_type: str | None, expected: bool) -> None:
    assert is_form(content_type) is expected


@pytest.mark.parametrize("name", ["image", "file"])
@pytest.mark.parametrize(
    "more", [b"", b'; filename="a.png"', b'; filename="a.png"\r\nContent-Type: image/png']
)
def test_the_image_comes_out_as_it_went_in(name: str, more: bytes) -> None:
    # Bytes that look like beginnings of a boundary.
    content = bytes(range(256)) + b"\r\n--limi\r\n--\r\r\n-" + b"--limit" * 3
    assert image_from_form(_part(name, content, more) + b"--limit--\r\n", _TYPE) == content


def test_other_headers_of_a_part_do_not_matter() -> None:
    headers = b'X-A: name="x"\r\ncontent-disposition: form-data; name=image\r\nX-B: y'
    assert image_from_form(b"--limit\r\n" + headers + b"\r\n\r\ndata\r\n--limit--", _TYPE) == b"data"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (_part("photo", b"x") + b"--limit--", "must be named 'image' or 'file', got 'photo'"),
        (
            _part("image", b"x") + _part("score_threshold", b"0.5") + b"--limit--",
            "got 'score_threshold'; thresholds are query parameters",
        ),
        (_part("image", b"x") + _part("file", b"x") + b"--limit--", "one field 'image' or 'file', got 2"),
        (b"--limit--\r\n", "one field 'image' or 'file', got 0"),
    ],
)
def test_wrong_fields(body: bytes, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        image_from_form(body, _TYPE)
    assert (caught.value.status, caught.value.code) == (422, "invalid_form")
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("body", "content_type", "message"),
    [
        (b"x", "multipart/form-data", "must name a boundary, got 'multipart/form-data'"),
        (b"x", "multipart/form-data; boundary=" + "b" * 1000, "valid multipart form"),
        (b"no form at all", _TYPE, "valid multipart form"),
        (_part("image", b"data"), _TYPE, "must end with its boundary"),
        (_part("image", b"data")[:-6], _TYPE, "must end with its boundary"),
        (
            b"--limit\r\nContent-Type: image/png\r\n\r\ndata\r\n--limit--",
            _TYPE,
            "needs a Content-Disposition",
        ),
        (b"--limit\r\nContent-Disposition: form-data\r\n\r\ndata\r\n--limit--", _TYPE, "with a name, got"),
        (b"--limit\r\nbroken header\r\n\r\ndata\r\n--limit--", _TYPE, "valid multipart form"),
        (_part("image", b"") * 9 + b"--limit--", _TYPE, "got more than 8"),
    ],
)
def test_malformed_forms(body: bytes, content_type: str, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        image_from_form(body, content_type)
    assert (caught.value.status, caught.value.code) == (400, "malformed_form")
    assert message in caught.value.message


def test_a_part_without_a_disposition_does_not_inherit_the_one_before() -> None:
    body = _part("image", b"x") + b"--limit\r\nX: y\r\n\r\ndata\r\n--limit--"
    with pytest.raises(ApiError) as caught:
        image_from_form(body, _TYPE)
    assert caught.value.code == "malformed_form"
