"""POST /v1/detect answered with a picture."""

import io
from typing import Any

import httpx
import numpy as np
import PIL.Image
import pytest
from problems import problem_of
from services import Encode

from lensbox.common.annotate import annotate
from lensbox.serve.requests import picture as picture_module


def opened(response: httpx.Response) -> PIL.Image.Image:
    assert response.status_code == 200
    return PIL.Image.open(io.BytesIO(response.content))


@pytest.mark.parametrize("accept", ["image/png", "image/png, application/json;q=0.5", "text/html, image/png"])
@pytest.mark.parametrize("as_form", [False, True])
def test_a_picture_shows_the_detections_of_the_answer(
    client: httpx.Client, encode: Encode, accept: str, as_form: bool
) -> None:
    file = encode("PNG")
    body: dict[str, Any] = {"files": {"image": file}} if as_form else {"content": file}
    found = client.post("/v1/detect", content=file).json()["detections"]
    response = client.post("/v1/detect?", headers={"Accept": accept}, **body)
    drawn = opened(response)
    assert (response.headers["content-type"], drawn.format) == ("image/png", "PNG")
    assert response.headers["vary"] == "Accept"
    expected = annotate(PIL.Image.open(io.BytesIO(file)), found)
    assert np.array_equal(np.asarray(drawn), np.asarray(expected))
    assert len(found) > 1


def test_returns_a_jpeg(client: httpx.Client, png: bytes) -> None:
    headers = {"Accept": "image/jpeg"}
    response = client.post("/v1/detect?score_threshold=1", content=png, headers=headers)
    drawn = opened(response)
    assert (response.headers["content-type"], drawn.format) == ("image/jpeg", "JPEG")
    plain = np.asarray(PIL.Image.open(io.BytesIO(png)), np.int16)
    assert np.abs(np.asarray(drawn, np.int16) - plain).mean() < 3  # nothing was found in it


@pytest.mark.parametrize("mode", ["L", "RGBA", "P"])
def test_pictures_are_in_color_and_upright(client: httpx.Client, encode: Encode, mode: str) -> None:
    file, headers = encode("PNG", mode, orientation=6), {"Accept": "image/png"}
    drawn = opened(client.post("/v1/detect", content=file, headers=headers))
    assert (drawn.mode, drawn.size) == ("RGB", (120, 200))
    stored = client.post("/v1/detect?orientation=stored", content=file, headers=headers)
    assert opened(stored).size == (200, 120)


@pytest.mark.parametrize("most", [None, 10_000])
def test_reduces_pictures_above_the_pixel_limit_only(
    client: httpx.Client, encode: Encode, monkeypatch: pytest.MonkeyPatch, most: int | None
) -> None:
    size, scale = ((1199, 821), 1) if most is None else ((200, 120), 2)
    if most is not None:
        monkeypatch.setattr(picture_module, "MAX_PICTURE_PIXELS", most)
    file = encode("JPEG", size=size)
    found = client.post("/v1/detect", content=file).json()["detections"]
    drawn = opened(client.post("/v1/detect", content=file, headers={"Accept": "image/png"}))
    expected = annotate(PIL.Image.open(io.BytesIO(file)).reduce(scale), found, scale=1 / scale)
    assert np.array_equal(np.asarray(drawn), np.asarray(expected))


def test_rejects_accept_headers_without_an_offered_type(client: httpx.Client, png: bytes) -> None:
    response = client.post("/v1/detect", content=b"not decoded", headers={"Accept": "image/webp"})
    assert (response.status_code, problem_of(response)["code"]) == (406, "not_acceptable")
    files = [("image", png), ("image", png)]
    response = client.post("/v1/detect", files=files, headers={"Accept": "image/png, image/*;q=0.5"})
    assert response.status_code == 406
    assert problem_of(response)["message"].startswith("Accept must allow application/json, got ")
    headers = {"Accept": "image/png, application/json;q=0.1"}
    response = client.post("/v1/detect", files=files, headers=headers)
    assert len(response.json()["images"]) == 2
