"""Evaluations, pictures and health by the client: against a real service, and against made-up answers."""

import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import PIL.Image
import pytest
from fake_transport import NOTHING, faked, in_turn
from serve_process import running_service
from user_detectors import RedAndBlue

from lensbox.client import Client, Evaluation, ImageEvaluation, ServiceError, Target
from lensbox.export.artifact_writer import save_artifact


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


def test_an_evaluation_is_that_of_the_service(colors: Client, squares: np.ndarray[Any, Any]) -> None:
    red, blue = Target((40, 60, 64, 84), "red"), Target([200, 100, 224, 124], "blue")
    nowhere = Target((0, 0, 9, 9), "red", ignore=True)
    images: list[Any] = [squares, b"hello", PIL.Image.fromarray(squares)]
    answer = colors.evaluate(images, [[red, blue], [red], [red, nowhere]], match_iou=0.4, iou_threshold=0.1)
    assert isinstance(answer, Evaluation)
    first, hello, last = answer.images
    assert isinstance(first, ImageEvaluation)
    assert isinstance(last, ImageEvaluation)
    assert (first.width, first.height, first.hits, first.misses, first.missed) == (320, 192, 2, 0, ())
    assert (last.hits, last.false_alarms, last.misses) == (1, 1, 0)
    assert isinstance(hello, ServiceError)
    assert (hello.status, hello.code) == (400, "undecodable_image")
    assert hello.request_id
    assert (answer.evaluated, answer.match_iou) == (2, 0.4)
    assert (answer.hits, answer.false_alarms, answer.misses) == (3, 1, 0)
    assert (answer.precision, answer.recall) == (0.75, 1)
    assert set(answer.classes) == {"red", "blue"}
    assert (answer.classes["red"].boxes, answer.classes["red"].average_precision) == (2, 1)
    assert [counts.score_threshold for counts in answer.thresholds] == [tenth / 10 for tenth in range(1, 10)]
    assert answer.average_precision is not None
    assert answer.average_precision_50_95 is not None
    assert answer.loss == pytest.approx((2 * (first.loss or 0) + (last.loss or 0)) / 3)


def test_boxes_may_be_arrays(url: str, photos: Path) -> None:
    """Of a detector without classes; its own detections are found again."""
    with Client(url) as client:
        found = client.detect(photos / "b.jpg").detections
        boxes = np.array([one.box for one in found])
        boxes = boxes[(boxes[:, 0] < boxes[:, 2]) & (boxes[:, 1] < boxes[:, 3])]
        answer = client.evaluate([photos / "b.jpg"], [boxes])
        assert answer.hits == len(boxes) > 0
        assert answer.average_precision is answer.average_precision_50_95 is None  # of one image
        assert answer.classes == {}
        same = client.evaluate([photos / "b.jpg"], [[Target(box) for box in boxes]], match_iou=0.5)
        assert (same.hits, same.misses) == (answer.hits, 0)
        raised = client.evaluate([photos / "b.jpg"], [boxes], score_threshold=1.0)
        assert (raised.score_threshold, raised.hits, raised.misses) == (1, 0, len(boxes))
        with pytest.raises(ServiceError, match="as the model has no classes") as caught:
            client.evaluate([photos / "b.jpg"], [[Target((0, 0, 1, 1), "car")]])
        assert (caught.value.status, caught.value.code) == (422, "invalid_targets")
        most = client.model().limits.max_images
        with pytest.raises(ServiceError) as caught:
            client.evaluate([b"x"] * (most + 5), [[]] * (most + 5))
        assert (caught.value.status, caught.value.code) == (413, "too_many_images")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([b"x"], []), "got 1 images and 0 targets"),
        (([], []), "at least one, got 0 images and 0 targets"),
        (([b"x"], [[{"box": [0, 0, 1, 1]}]]), r"must be a box x1, y1, x2, y2, got \{'box'"),
        (([b"x"], [[Target((0, 0, 1))]]), r"must be a box x1, y1, x2, y2, got \(0, 0, 1\)"),
        (([b"x"], [[7]]), "must be a box x1, y1, x2, y2, got 7"),
        (([b"x"], [[]], 0.0), "match_iou must be above 0 and at most 1, got 0"),
        (([b"x"], [[]], math.nan), "match_iou must be above 0 and at most 1, got nan"),
    ],
)
def test_wrong_evaluations_are_not_asked_for(arguments: Any, message: str) -> None:
    images, targets, *match_iou = arguments
    options = {"match_iou": match_iou[0]} if match_iou else {}
    with faked(in_turn()[0]) as client, pytest.raises(ValueError, match=message):
        client.evaluate(images, targets, **options)


def test_answers_that_are_no_evaluations() -> None:
    documents: tuple[Any, ...] = ({}, [], {"images": []})
    for document in documents:
        with faked(in_turn(httpx.Response(200, json=document))[0]) as client:
            with pytest.raises(ServiceError) as caught:
                client.evaluate([b"x"], [[]])
            assert caught.value.code == "unexpected_answer"


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
