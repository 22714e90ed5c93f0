"""POST /v1/detect over a real artifact."""

import copy
import io
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import PIL.Image
import pytest
from problems import problem_of

from lensbox.runtime.artifact import Artifact
from lensbox.runtime.images.decoder import decode_photo
from lensbox.runtime.images.files import read_image
from lensbox.runtime.images.limits import ImageLimits
from lensbox.serve.requests import image_file as image_body

Encode = Callable[..., bytes]


def _expected(artifact: Artifact, file: bytes, **thresholds: float) -> dict[str, Any]:
    found = artifact.detect_image(artifact.read_photo(file), **thresholds)
    height, width = read_image(file).shape[1:]
    return {
        "width": width,
        "height": height,
        "detections": [
            {"box": box, "score": score}
            for box, score in zip(found.boxes.tolist(), found.scores.tolist(), strict=True)
        ],
    }


def test_the_answer_is_that_of_the_artifact(client: httpx.Client, artifact: Artifact, png: bytes) -> None:
    expected = _expected(artifact, png)
    response = client.post("/v1/detect", content=png)
    assert response.status_code == 200
    assert response.json() == expected
    assert len(expected["detections"]) > 1
    scores = [found["score"] for found in expected["detections"]]
    assert scores == sorted(scores, reverse=True)
    # Boxes are in pixels of this image (200 x 120), not of the canvas (256 x 256).
    right, bottom = np.array([found["box"] for found in expected["detections"]]).max(0)[2:]
    assert right <= 200
    assert bottom <= 120


@pytest.mark.parametrize(
    "thresholds",
    [{"score_threshold": 0.01}, {"iou_threshold": 0.1}, {"score_threshold": 0, "iou_threshold": 1}],
)
def test_thresholds(
    client: httpx.Client, artifact: Artifact, png: bytes, thresholds: dict[str, float]
) -> None:
    expected = _expected(artifact, png, **thresholds)
    assert expected != _expected(artifact, png)
    assert client.post("/v1/detect", content=png, params=thresholds).json() == expected


@pytest.mark.parametrize("format_name", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", [1, 2, 6, 8])
def test_photographs_are_turned_upright(
    client: httpx.Client, artifact: Artifact, encode: Encode, format_name: str, orientation: int
) -> None:
    data = PIL.Image.Exif()
    data[0x0112] = orientation
    file = encode(format_name, exif=data)
    size = {"width": 120, "height": 200} if orientation > 4 else {"width": 200, "height": 120}
    expected = _expected(artifact, file)
    assert expected.items() >= size.items()
    assert client.post("/v1/detect", content=file).json() == expected
    assert client.post("/v1/detect?orientation=exif", content=file).json() == expected
    found = artifact.detect_image(artifact.read_photo(file, orientation="stored"))
    stored = client.post("/v1/detect?orientation=stored", content=file).json()
    assert (stored["width"], stored["height"]) == (200, 120)
    assert [one["box"] for one in stored["detections"]] == found.boxes.tolist()
    assert (stored == expected) is (orientation == 1)


@pytest.mark.parametrize("orientation", [1, 7])
def test_a_large_jpeg_is_read_as_the_artifact_reads_it(
    client: httpx.Client, artifact: Artifact, photograph: np.ndarray[Any, Any], orientation: int
) -> None:
    """At half its size, and its boxes are in pixels of the whole."""
    data = PIL.Image.Exif()
    data[0x0112] = orientation
    buffer = io.BytesIO()
    PIL.Image.fromarray(photograph).resize((1199, 821)).save(buffer, "JPEG", exif=data)
    file = buffer.getvalue()
    assert min(artifact.read_photo(file).pixels.shape[1:]) == 411
    expected = _expected(artifact, file)
    assert client.post("/v1/detect", content=file).json() == expected
    assert np.array([found["box"] for found in expected["detections"]]).max() > 700


@pytest.mark.parametrize("name", ["score_threshold", "iou_threshold"])
@pytest.mark.parametrize("value", ["-0.1", "1.5", "nan", "inf", "high", "", "0.5,0.6"])
def test_rejects_thresholds_out_of_range(client: httpx.Client, png: bytes, name: str, value: str) -> None:
    response = client.post("/v1/detect", params={name: value}, content=png)
    assert response.status_code == 422
    error = problem_of(response)
    assert error["code"] == "invalid_parameter"
    assert error["message"].startswith(f"{name} must be ")
    assert error["message"].endswith(f", got {value!r}")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("orientation=up", "orientation must be 'exif' or 'stored', got 'up'"),
        ("a=1&a=2", "the query parameter 'a' must come once, got it again"),
        (
            "a=1",
            "there is no query parameter 'a' (known: score_threshold, iou_threshold, orientation); "
            "got the value '1'",
        ),
    ],
)
def test_rejects_wrong_parameters(client: httpx.Client, png: bytes, query: str, message: str) -> None:
    response = client.post(f"/v1/detect?{query}", content=png)
    assert response.status_code == 422
    assert problem_of(response) == {"code": "invalid_parameter", "message": message}


@pytest.mark.parametrize(
    ("make_request", "status", "code"),
    [
        ({"content": b""}, 400, "empty_body"),
        ({}, 400, "empty_body"),
        ({"content": b"\x89PNG\r\n\x1a\n"}, 400, "undecodable_image"),
        ({"content": b"random bytes"}, 400, "undecodable_image"),
        ({"content": b'{"image": "..."}'}, 400, "undecodable_image"),
        ({"content": b"II*\x00 and so on"}, 415, "unsupported_format"),
        ({"files": {"image": ("a.png", b"")}}, 400, "empty_image"),
        ({"files": {"photo": ("a.png", b"data")}}, 422, "invalid_form"),
        ({"files": [("image", b"data"), ("file", b"data")]}, 422, "invalid_form"),
        ({"files": [("image", b"data")] * 33}, 413, "too_many_images"),
        ({"content": b"x", "headers": {"Content-Type": "multipart/form-data"}}, 400, "malformed_form"),
        ({"content": b"x", "headers": {"Content-Encoding": "gzip"}}, 415, "unsupported_encoding"),
    ],
)
def test_bad_bodies(client: httpx.Client, make_request: dict[str, Any], status: int, code: str) -> None:
    response = client.post("/v1/detect", **make_request)
    assert response.status_code == status
    assert problem_of(response)["code"] == code
    assert client.get("/readyz").status_code == 200


@pytest.mark.parametrize("declared", [True, False])
def test_too_large_a_body(client: httpx.Client, declared: bool) -> None:
    size = (2 << 20) + 1
    content = bytes(size) if declared else iter([bytes(size)])
    response = client.post("/v1/detect", content=content)
    assert response.status_code == 413
    error = problem_of(response)
    assert error["code"] == "body_too_large"
    received = f"a Content-Length of {size}" if declared else str(size)
    assert error["message"].startswith(f"the body must have at most {2 << 20} bytes, got {received}")


def test_a_body_of_the_largest_size_is_read(client: httpx.Client, png: bytes, artifact: Artifact) -> None:
    # Decoders ignore what follows the end of a PNG file.
    response = client.post("/v1/detect", content=png + bytes((2 << 20) - len(png)))
    assert response.json() == _expected(artifact, png)


def _alike(answer: Any, expected: Any) -> bool:
    """Whether two answers are equal but for the last digit of float32, which depends on the batch size."""
    answer, expected = copy.deepcopy(answer), copy.deepcopy(expected)
    found, wanted = (
        [[*detection.pop("box"), detection.pop("score")] for detection in one["detections"]]
        for one in (answer, expected)
    )
    return bool(answer == expected and np.allclose(found, wanted, rtol=0, atol=1e-4))


def test_many_requests_at_once(client: httpx.Client, artifact: Artifact, encode: Encode) -> None:
    files = [encode("PNG"), encode("JPEG"), encode("PNG", "L"), b"not an image"]
    expected = [_expected(artifact, file) for file in files[:3]]
    failures: list[Any] = []

    def ask(number: int) -> None:
        for turn in range(8):
            which = (number + turn) % 4
            response = client.post("/v1/detect", content=files[which])
            good = response.status_code == 400 if which == 3 else _alike(response.json(), expected[which])
            if not good:
                failures.append((number, turn, response.status_code, response.text[:200]))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failures == []


def test_nobody_decodes_for_longer_than_the_client_is_told_to_wait(
    start: Callable[..., Any],
    png: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times_left = []

    def decode(file: bytes, canvas: Any, reading: Any, limits: ImageLimits, *arguments: Any) -> Any:
        assert limits.deadline is not None
        times_left.append(limits.deadline - time.monotonic())
        return decode_photo(file, canvas, reading, limits, *arguments)

    monkeypatch.setattr(image_body, "decode_photo", decode)
    running = start(answer_timeout=20.0)
    assert running.client.post("/v1/detect", content=png).status_code == 200
    assert len(times_left) == 1
    assert 0 < times_left[0] <= 20
