"""POST /v1/detect of several images."""

import base64
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest
from png_files import png_file
from problems import problem_of
from services import Encode, Start, connect, raw
from waiting import wait_until


def form_of(*files: bytes) -> list[tuple[str, tuple[str, bytes]]]:
    return [("image", ("x", file)) for file in files]


def json_of(*files: bytes) -> dict[str, list[dict[str, str]]]:
    return {"images": [{"data": base64.b64encode(file).decode()} for file in files]}


def assert_alike(answer: Any, expected: Any) -> None:
    """Assert equality up to float32 rounding, which depends on the batch size."""
    assert (answer["width"], answer["height"]) == (expected["width"], expected["height"])
    found, wanted = (
        np.array([[*one["box"], one["score"]] for one in image["detections"]]) for image in (answer, expected)
    )
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4)


@pytest.fixture(scope="module")
def files(encode: Encode) -> list[bytes]:
    return [encode("PNG"), encode("JPEG"), encode("PNG", size=(90, 300)), encode("PNG", "L")]


@pytest.mark.parametrize("as_json", [False, True])
def test_each_image_gets_the_answer_of_a_single_request(
    client: httpx.Client, files: list[bytes], as_json: bool
) -> None:
    many = [files[index % 4] for index in range(20)]
    body: dict[str, Any] = {"json": json_of(*many)} if as_json else {"files": form_of(*many)}
    response = client.post("/v1/detect", **body)
    assert response.status_code == 200
    assert list(response.json()) == ["images"]
    answers = response.json()["images"]
    alone = [client.post("/v1/detect", content=file).json() for file in files]
    assert len(answers) == 20
    for index, answer in enumerate(answers):
        assert_alike(answer, alone[index % 4])
    assert len({(one["width"], len(one["detections"])) for one in alone}) > 1


def test_concurrent_requests_get_their_own_answers(client: httpx.Client, files: list[bytes]) -> None:
    alone = [client.post("/v1/detect", content=file).json() for file in files]
    with ThreadPoolExecutor(8) as pool:
        requests = [pool.submit(client.post, "/v1/detect", content=files[index % 4]) for index in range(48)]
    for index, request in enumerate(requests):
        assert_alike(request.result().json(), alone[index % 4])


def test_a_form_of_one_image_returns_one_answer_and_json_a_list(client: httpx.Client, png: bytes) -> None:
    alone = client.post("/v1/detect", content=png).json()
    assert client.post("/v1/detect", files=form_of(png)).json() == alone
    assert client.post("/v1/detect", json=json_of(png)).json() == {"images": [alone]}


def test_parameters_come_from_query_or_body(client: httpx.Client, png: bytes) -> None:
    expected = client.post("/v1/detect?score_threshold=0&iou_threshold=0.1", content=png).json()
    assert expected != client.post("/v1/detect", content=png).json()
    both = {**json_of(png, png), "score_threshold": 0, "iou_threshold": 0.1}
    for query, body in (
        ("", {"json": both}),
        ("?score_threshold=0", {"json": {**json_of(png, png), "iou_threshold": 0.1}}),
        ("?score_threshold=0&iou_threshold=0.1", {"files": form_of(png, png)}),
    ):
        for answer in client.post(f"/v1/detect{query}", **body).json()["images"]:
            assert_alike(answer, expected)
    twice = client.post("/v1/detect?score_threshold=0", json=both)
    assert twice.status_code == 422
    assert problem_of(twice)["code"] == "invalid_parameter"


def test_a_bad_image_has_a_problem_in_its_place(client: httpx.Client, png: bytes) -> None:
    bad = [b"no image", b"", png_file(50_000, 50_000, pixels=b""), b"II*\x00 and so on", png[: len(png) // 2]]
    expected = [
        (400, "undecodable_image"),
        (400, "empty_image"),
        (413, "too_many_pixels"),
        (415, "unsupported_format"),
        (400, "undecodable_image"),
    ]
    mixed = [png, *bad, png]
    for body in ({"files": form_of(*mixed)}, {"json": json_of(*mixed)}):
        response = client.post("/v1/detect", **body)
        assert response.status_code == 200
        first, *errors, last = response.json()["images"]
        assert_alike(first, client.post("/v1/detect", content=png).json())
        assert_alike(last, first)
        for file, error, (status, code) in zip(bad, errors, expected, strict=True):
            alone = client.post("/v1/detect", content=file or b"\0")
            assert list(error) == ["error"]
            assert (error["error"]["status"], error["error"]["code"]) == (status, code)
            if file:
                assert error["error"] == alone.json()


def test_images_of_one_request_are_computed_together(start: Start, fake: Any, png: bytes) -> None:
    running = start(max_batch=4)
    fake.gate.clear()
    running.send("/v1/detect", files=form_of(*[png] * 9))
    # One image is computed and seven wait: at most two batches of a request are in flight.
    wait_until(lambda: running.service.engine.waiting == 8 - len(fake.calls))
    fake.gate.set()
    assert running.statuses() == [200]
    assert len(running.responses[0].json()["images"]) == 9
    assert max(fake.batches) == 4
    assert len(fake.calls) == 9


def test_a_request_larger_than_the_queue_is_answered(start: Start, png: bytes) -> None:
    """The request submits only as many images as the queue takes, by number and by bytes."""
    for settings in ({"queue_size": 3}, {"queue_size": 1}, {"queue_bytes": 100_000}):
        response = start(**settings).client.post("/v1/detect", files=form_of(*[png] * 20))
        assert response.status_code == 200
        assert all("detections" in answer for answer in response.json()["images"])


def test_overload_and_deadlines_fail_the_whole_request(start: Start, fake: Any, png: bytes) -> None:
    running = start(queue_size=1)
    client = running.client
    fake.gate.clear()
    for waiting in range(2):
        running.send("/v1/detect", content=png)
        wait_until(lambda: len(fake.calls) == 1)
        wait_until(lambda waiting=waiting: running.service.engine.waiting == waiting)  # type: ignore[misc]
    response = client.post("/v1/detect", files=form_of(png, b"bad", png))
    assert response.status_code == 503
    assert problem_of(response)["code"] == "overloaded"
    fake.gate.set()
    assert running.statuses() == [200, 200]

    fake.gate.clear()
    hurry = {"X-Request-Timeout-Ms": "300"}
    response = client.post("/v1/detect", files=form_of(png, b"bad", png), headers=hurry)
    assert response.status_code == 504
    assert problem_of(response)["code"] == "deadline_exceeded"
    fake.gate.set()
    wait_until(lambda: running.service.engine.waiting == 0)
    assert client.post("/v1/detect", files=form_of(png, png)).status_code == 200
    wait_until(lambda: running.service.in_progress == 0)


def test_images_of_a_client_that_hangs_up_are_not_computed(start: Start, fake: Any, png: bytes) -> None:
    running = start(max_batch=1)
    fake.gate.clear()
    request = httpx.Request("POST", running.client.base_url, files=form_of(*[png] * 9))
    with connect(running.client.base_url) as connection:
        connection.sendall(raw(request, "/v1/detect"))
        wait_until(lambda: (len(fake.calls), running.service.engine.waiting) == (1, 1))
    wait_until(lambda: running.service.in_progress == 0)
    fake.gate.set()
    assert running.client.post("/v1/detect", content=png).status_code == 200
    assert len(fake.calls) == 2
