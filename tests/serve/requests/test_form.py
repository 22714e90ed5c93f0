"""Multipart bodies."""

import pytest

from lensbox.serve.errors import ApiError
from lensbox.serve.requests.form import form_image

_TYPE = "multipart/form-data; boundary=limit"


def _part(name: str, content: bytes, more: bytes = b"") -> bytes:
    header = f'--limit\r\nContent-Disposition: form-data; name="{name}"'.encode()
    return header + more + b"\r\n\r\n" + content + b"\r\n"


@pytest.mark.parametrize("name", ["image", "file"])
@pytest.mark.parametrize(
    "more",
    [b"", b'; filename="a.png"\r\nContent-Type: image/png', b'\r\nX-A: name="x"\r\nX-B: y'],
)
@pytest.mark.parametrize(
    ("preamble", "epilogue"),
    [
        (b"", b""),
        (b"\r\n", b"\r\n"),
        (b"--A MIME form:\n", b"\r\nthe end\r\n--limit"),
        (b"a --limit\r\n", b""),
    ],
)
def test_returns_the_content_of_the_image_unchanged(
    name: str, more: bytes, preamble: bytes, epilogue: bytes
) -> None:
    # The content has prefixes of the boundary.
    content = bytes(range(256)) + b"\r\n--limi\r\n--\r\r\n-" + b"--limit" * 3 + b"--limit \r\n"
    part = _part(name, content, more)
    for first in (part, part.replace(b"--limit", b"--limit \t", 1)):
        assert form_image(preamble + first + b"--limit--" + epilogue, _TYPE) == content


@pytest.mark.parametrize(
    ("body", "received"),
    [
        (_part("photo", b"x"), "a field 'photo'; thresholds are query parameters"),
        (
            _part("image", b"x") + _part("score_threshold", b"0.5"),
            "a field 'score_threshold'; thresholds are",
        ),
        (_part("image", b"x") + _part("file", b"x"), "several; send each image in a request of its own"),
        (_part("image", b"x") * 10_000, "several; "),
        (b"--limit--\r\n", "none"),
    ],
)
def test_rejects_other_fields(body: bytes, received: str) -> None:
    with pytest.raises(ApiError) as caught:
        form_image(body + b"--limit--", _TYPE)
    assert (caught.value.status, caught.value.code) == (422, "invalid_form")
    rule = "the form must have one field, 'image' or 'file', got "
    assert caught.value.message.startswith(rule + received)


@pytest.mark.parametrize(
    ("body", "content_type", "message"),
    [
        (b"x", "multipart/form-data", "must name a boundary, got 'multipart/form-data'"),
        (b"x", "multipart/form-data; boundary=" + "b" * 1000, "valid multipart"),
        (b"no form at all", _TYPE, "valid multipart"),
        (_part("image", b"data"), _TYPE, "must end with its boundary"),
        (_part("image", b"data")[:-6], _TYPE, "must end with its boundary"),
        (b"--limit\r\nContent-Type: image/png\r\n\r\ndata\r\n--limit--", _TYPE, "valid multipart"),
        # A part without a disposition does not inherit the disposition of the previous part.
        (_part("image", b"x") + b"--limit\r\nX: y\r\n\r\ndata\r\n--limit--", _TYPE, "valid multipart"),
    ],
)
def test_rejects_malformed_forms(body: bytes, content_type: str, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        form_image(body, content_type)
    assert (caught.value.status, caught.value.code) == (400, "malformed_form")
    assert message in caught.value.message
