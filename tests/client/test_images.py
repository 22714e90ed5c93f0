"""`detect_many`: size of requests, order of results, and errors of single images."""

import email
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from fake_transport import NOTHING, faked, problem

from lensbox.client import Client, ImageDetections, ServiceError
from lensbox.client.images import Pace
from lensbox.common.errors import InputError, LensboxError

MODEL: dict[str, Any] = {
    "name": "made_up",
    "defaults": {"score_threshold": 0.5, "iou_threshold": 0.25},
    "service": {
        "version": "1",
        "torch": "2",
        "device": "cpu",
        "limits": {
            **dict.fromkeys(("max_body_bytes", "max_json_bytes", "max_pixels", "max_boxes"), 2000),
            "max_images": 3,
        },
    },
}

IMAGES = [str(number).encode() for number in range(20)]


def images_of(request: httpx.Request) -> list[bytes]:
    """Return the files in a request: the body, or the parts of a form."""
    content_type = request.headers.get("Content-Type", "")
    if not content_type.startswith("multipart/form-data"):
        return [request.content]
    form = email.message_from_bytes(f"Content-Type: {content_type}\r\n\r\n".encode() + request.content)
    parts: Any = form.get_payload()
    assert all('name="image"' in part["Content-Disposition"] for part in parts)
    return [part.get_payload(decode=True) for part in parts]


def answered(images: list[bytes]) -> httpx.Response:
    """Answer with the number in each file as its width."""
    found = [{**NOTHING, "width": int(image)} for image in images]
    return httpx.Response(200, json=found[0] if len(found) == 1 else {"images": found})


class Service:
    """A fake service. requests: images of each request, in order. model: the answer of /v1/model."""

    def __init__(
        self, answer: Callable[[list[bytes]], httpx.Response] = answered, model: Any = MODEL
    ) -> None:
        self.requests: list[list[bytes]] = []
        self.model = model
        self.asked_for_model = 0
        self._answer = answer

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/v1/model"):
            self.asked_for_model += 1
            return httpx.Response(200, json=self.model)
        images = images_of(request)
        self.requests.append(images)
        return self._answer(images)


def numbers(results: list[ImageDetections | LensboxError]) -> list[int | str]:
    return [one.width if isinstance(one, ImageDetections) else str(one) for one in results]


@pytest.mark.parametrize(("batch_size", "most"), [(1, 1), (2, 2), (100, 3)])
def test_limits_the_images_per_request(batch_size: int, most: int) -> None:
    service = Service()
    with faked(service, connections=1) as client:
        assert numbers(list(client.detect_many(IMAGES, batch_size=batch_size))) == list(range(20))
        with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
            client.detect_many([], batch_size=0)
    assert max(len(images) for images in service.requests) == most
    assert service.asked_for_model == (batch_size > 1)


def test_limits_the_bytes_per_request() -> None:
    """The limit is two files of 400 bytes with the parts of a form."""
    service = Service()
    sizes: list[int] = []

    def transport(request: httpx.Request) -> httpx.Response:
        sizes.append(len(request.content))
        return service(request)

    with faked(transport, connections=1) as client:
        images = [str(number).encode().rjust(400) for number in range(20)]
        images[9] = b"9".rjust(5000)  # sent alone; the service rejects it
        assert numbers(list(client.detect_many(images))) == list(range(20))
    assert max(len(images) for images in service.requests) == 2
    *_, second, largest = sorted(sizes)
    assert second <= 2000 < largest == 5000


def test_yields_errors_in_the_order_of_the_images(url: str, photos: Path) -> None:
    good = [photos / "b.jpg", photos / "a.PNG", photos / "turned.jpg"]
    images: list[Any] = [*good * 6, b"hello", photos / "missing.jpg", 7, *good * 6]
    with Client(url, connections=2) as client:
        alone = list(client.detect_many(images, batch_size=1))
        together = list(client.detect_many(images, batch_size=8))
    assert len(together) == len(alone) == len(images)
    for one, other in zip(together, alone, strict=True):
        if isinstance(other, ImageDetections):
            assert isinstance(one, ImageDetections)
            assert (one.width, one.height) == (other.width, other.height)
            scores = [found.score for found in other.detections]
            assert [found.score for found in one.detections] == pytest.approx(scores, abs=1e-5)
        else:
            assert type(one) is type(other)
    hello, missing, number = together[18:21]
    assert isinstance(hello, ServiceError)
    assert (hello.status, hello.code, hello.is_of_one_image) == (400, "undecodable_image", True)
    assert hello.request_id
    assert str(hello) == f"{hello.detail} (400 undecodable_image, request {hello.request_id})"
    assert isinstance(missing, InputError)
    assert isinstance(number, InputError)
    assert str(number).endswith("got int")


@pytest.mark.parametrize(("status", "sizes"), [(500, [3, 1]), (401, [3])])
def test_splits_a_failed_request_into_images(status: int, sizes: list[int]) -> None:
    def answer(images: list[bytes]) -> httpx.Response:
        return problem(status, "failed") if b"13" in images else answered(images)

    service = Service(answer)
    with faked(service, connections=1) as client:
        results = list(client.detect_many(IMAGES))
    requests = [images for images in service.requests if b"13" in images]
    assert [len(images) for images in requests] == sizes
    failed = {index for index, result in enumerate(results) if isinstance(result, ServiceError)}
    assert failed == {int(image) for image in requests[-1]}


def test_retries_a_rejected_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lensbox.client.connection.wait_or_stop", lambda seconds, stopped: False)
    refused: list[list[bytes]] = []

    def answer(images: list[bytes]) -> httpx.Response:
        if len(images) > 1 and images not in refused:
            refused.append(images)
            return problem(503, "overloaded", **{"Retry-After": "1"})
        return answered(images)

    with faked(Service(answer), connections=1) as client:
        assert numbers(list(client.detect_many(IMAGES))) == list(range(20))
    assert refused


@pytest.mark.parametrize("model", [{}, {**MODEL, "service": {}}, [], None])
def test_sends_one_image_at_a_time_without_limits(model: Any) -> None:
    service = Service(model=model)
    with faked(service, connections=1) as client:
        assert numbers(list(client.detect_many(IMAGES[:9]))) == list(range(9))
    assert all(len(images) == 1 for images in service.requests)
    assert service.asked_for_model == 1


def test_requests_the_limits_after_the_first_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing service causes one failed request, not two."""
    monkeypatch.setattr("lensbox.client.connection.wait_or_stop", lambda seconds, stopped: False)
    service = Service(lambda images: problem(503, "not_ready"))
    with faked(service, connections=1, retries=2) as client:
        results = list(client.detect_many([b"0", b"1"]))
    assert all(isinstance(result, ServiceError) and result.status == 503 for result in results)
    assert (len(service.requests), service.asked_for_model) == (6, 0)


@pytest.mark.parametrize(
    "document",
    [{"images": []}, {"images": [NOTHING] * 4}, {"images": [{}] * 3}, {"images": 3}, [NOTHING] * 3],
)
def test_rejects_answers_of_another_service(document: Any) -> None:
    def answer(images: list[bytes]) -> httpx.Response:
        return answered(images) if len(images) < 3 else httpx.Response(200, content=json.dumps(document))

    with faked(Service(answer), connections=1) as client:
        results = list(client.detect_many(IMAGES))
    errors = [result for result in results if isinstance(result, ServiceError)]
    assert errors
    assert {error.code for error in errors} == {"unexpected_answer"}


def test_the_batch_size_follows_the_latency() -> None:
    pace = Pace(timeout=32.0)
    sizes = []
    for seconds in (0.1, 0.1, 1.9, 1.9, 5.0, 9.0, 9.0, 0.1, 8.1, 9.0, 9.0):
        pace.answered(seconds, most=6)
        sizes.append(pace.images)
    assert sizes == [2, 4, 6, 6, 6, 3, 1, 2, 1, 1, 1]
