"""The header Accept."""

import pytest

from lensbox.serve.requests.errors import ApiError
from lensbox.serve.requests.picture import negotiated

_OFFERED = ("application/json", "image/jpeg", "image/png")


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ([], "application/json"),
        ([""], "application/json"),
        (["*/*"], "application/json"),
        (["application/*"], "application/json"),
        (["image/png"], "image/png"),
        (["Image/PNG"], "image/png"),
        (["image/*"], "image/jpeg"),
        (["image/png, image/jpeg"], "image/jpeg"),
        (["image/png;q=0.9, image/jpeg;q=0.8"], "image/png"),
        (["image/png; q=0.9 ,image/jpeg ; q=1.000"], "image/jpeg"),
        (["image/*, image/jpeg;q=0.5"], "image/png"),
        (["image/*, image/jpeg;q=0"], "image/png"),
        (["*/*, application/json;q=0.1"], "image/jpeg"),
        (["*/*;q=0.1, image/png;q=0.2"], "image/png"),
        (["text/html, image/webp, */*;q=0.01"], "application/json"),
        (["image/png", "application/json;q=0.1"], "image/png"),  # two headers
        (["image/png;level=1;q=0.5, image/jpeg;q=0.4"], "image/png"),
        (["image/png;q=0.001"], "image/png"),
        # Malformed ranges are ignored.
        (["image/png;q=2, image/jpeg;q=0.1"], "image/jpeg"),
        (["*/png, image/jpeg"], "image/jpeg"),
        (["garbage"], "application/json"),
        (["image/png;q=high"], "application/json"),
        ([",,;;,"], "application/json"),
    ],
)
def test_chooses_the_best_type(accept: list[str], expected: str) -> None:
    assert negotiated(accept, _OFFERED) == expected


@pytest.mark.parametrize(
    "accept",
    ["text/html", "image/webp, image/gif", "*/*;q=0", "image/png;q=0, text/plain", "image/png;q=0.000"],
)
def test_rejects_a_header_that_allows_no_type(accept: str) -> None:
    with pytest.raises(ApiError) as caught:
        negotiated([accept], _OFFERED)
    assert (caught.value.status, caught.value.code) == (406, "not_acceptable")
    message = f"Accept must allow application/json or image/jpeg or image/png, got {accept!r}"
    assert caught.value.message == message
