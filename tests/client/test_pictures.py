"""Pictures and health by the client: against a real service, and against made-up answers."""

import io
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import PIL.Image
import pytest
from fake_transport import NOTHING, faked, in_turn
from serve_process import running_service
from user_detectors import RedAndBlue

from lensbox.client import Client, ServiceError
from lensbox.export.pipeline import save_artifact


@pytest.fixture(scope="module")
def colors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a service that finds red and blue squares."""
    path = tmp_path_factory.mktemp("red_and_blue") / "detector.pt"
    detector: Any = RedAndBlue()
    save_artifact(detector, path)
    with running_service(path) as url, Client(url) as client:
        yield client


@pytest.fixture
def squares() -> np.ndarray[Any, Any]:
    """A red square at 40, 60 and a blue one at 200, 100, both of 24 pixels."""
    pixels = np.full((192, 320, 3), 114, np.uint8)
    pixels[60:84, 40:64] = (250, 10, 10)
    pixels[100:124, 200:224] = (10, 10, 250)
    return pixels


# --- pictures ---


@pytest.mark.parametrize("file_format", ["png", "jpeg"])
def test_a_picture_has_what_was_found(
    colors: Client, squares: np.ndarray[Any, Any], file_format: Any
) -> None:
    drawn = colors.annotate(squares, file_format=file_format)
    with PIL.Image.open(io.BytesIO(drawn)) as picture:
        assert picture.format == file_format.upper()
        assert picture.size == (320, 192)
        changed = np.abs(np.asarray(picture.convert("RGB"), int) - squares) > 60
    assert changed.any()
    nothing = colors.annotate(squares, score_threshold=1.0)
    with PIL.Image.open(io.BytesIO(nothing)) as picture:
        np.testing.assert_array_equal(np.asarray(picture), squares)


def test_what_is_no_picture() -> None:
    answer, requests = in_turn(httpx.Response(200, json=NOTHING))
    with faked(answer) as client:
        with pytest.raises(ValueError, match="file_format must be 'png' or 'jpeg', got 'gif'"):
            client.annotate(b"file", file_format="gif")  # type: ignore[arg-type]
        with pytest.raises(ServiceError) as caught:
            client.annotate(b"file", file_format="jpeg")
    assert caught.value.code == "unexpected_answer"
    assert requests[0].headers["accept"] == "image/jpeg"


# --- health ---


def test_alive_and_ready_are_two_things(colors: Client) -> None:
    assert colors.alive()
    assert colors.ready()

    def loading(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200 if request.url.path.endswith("/healthz") else 503, json={})

    with faked(loading) as client:
        assert (client.alive(), client.ready()) == (True, False)
    with faked(in_turn(httpx.ConnectError("refused"))[0]) as client:
        assert not client.alive()
