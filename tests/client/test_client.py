"""The client: with a real service, and with fake answers; retries and errors."""

import contextlib
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import PIL.Image
import pytest
from fake_transport import NOTHING, faked, in_turn, problem
from programs import run_python
from pydantic import TypeAdapter
from waiting import PATIENCE, wait_until

from lensbox.client import Client, Detection, ImageDetections, LossAnswer, ServiceError
from lensbox.common.errors import InputError


def test_all_methods_of_a_service(url: str, photos: Path) -> None:
    with Client(url) as client:
        assert client.ready()
        assert client.metadata()["canvas"]["width"] == 256
        loss = client.loss([[0, 0, 2, 2], [0, 0, 0, 0]], np.array([[1, 1, 3, 3], [0, 0, 0, 0]]))
        assert loss.loss == pytest.approx(1 - (1 / 7 - 2 / 9))  # by hand
        assert (loss.slots, loss.gradient) == (1, None)
        answer = client.loss([np.array([[0, 0, 4, 4]])], [[[0, 0, 4, 2]]], gradient=True)
        assert answer.gradient == [[pytest.approx([1 / 32, 1 / 16, -1 / 32, 1 / 8])]]
        raw = httpx.post(f"{url}/v1/detect", content=(photos / "b.jpg").read_bytes()).json()
        found = client.detect(photos / "b.jpg")
        with PIL.Image.open(photos / "a.PNG") as picture, (photos / "a.PNG").open("rb") as file:
            array = np.asarray(picture)
            expected = client.detect(file)
            assert (expected.width, expected.height) == picture.size
            reversed_array = np.ascontiguousarray(array[..., ::-1])
            assert all(client.detect(image) == expected for image in (str(photos / "a.PNG"), picture, array))
            assert client.detect(reversed_array, color_order="BGR") == expected
            assert list(client.detect_many([reversed_array], color_order="BGR")) == [expected]
    assert found.detections
    assert found.to_json() == raw
    assert found.detections[0] == Detection(tuple(raw["detections"][0]["box"]), raw["detections"][0]["score"])


def test_rejects_wrong_arguments() -> None:
    answer, requests = in_turn()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"score_threshold": 1.5}, "score_threshold must be .* got 1.5"),
        ({"iou_threshold": math.nan}, "iou_threshold must be .* got NaN"),
    ]
    with faked(answer) as client:
        for how, message in wrong:
            with pytest.raises(ValueError, match=message):
                client.detect(b"", **how)
            with pytest.raises(ValueError, match=message):
                client.detect_many([], **how)
        with pytest.raises(TypeError, match="images must be a list"):
            client.detect_many("a.jpg")
    assert requests == []


def test_rejects_wrong_settings() -> None:
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("127.0.0.1:8000", {}, "url must begin with http://"),
        ("http://a", {"timeout": math.nan}, "timeout must be"),
        ("http://a", {"retries": -1}, "retries must be .* or equal to 0, got -1"),
        ("http://a", {"retry": 1}, "'retry' is not a field"),
        ("http://a", {"api_key": "secret\r\nHost: b"}, "api_key must consist of visible ASCII characters"),
    ]
    for url, options, message in wrong:
        with pytest.raises(ValueError, match=message) as caught:
            Client(url, **options)
        assert "secret" not in str(caught.value)


def test_sends_key_timeout_parameters_and_body() -> None:
    answer, requests = in_turn(httpx.Response(200, json=NOTHING), httpx.Response(200, json=NOTHING))
    parameters: Any = {"score_threshold": 0.5, "iou_threshold": 1, "orientation": "stored", "tiles": "auto"}
    with faked(answer, api_key="k-1", timeout=2.5) as client:
        assert client.detect(b"file", **parameters) == ImageDetections(4, 3, ())
    with faked(answer) as client:
        client.detect(b"file")
    first, second = requests
    query = "score_threshold=0.5&iou_threshold=1.0&orientation=stored&tiles=auto"
    assert str(first.url) == f"http://service/below/v1/detect?{query}"
    assert first.content == b"file"
    assert first.headers["authorization"] == "Bearer k-1"
    assert first.headers["x-request-timeout-ms"] == "2500"
    assert not second.url.query
    assert "authorization" not in second.headers


def test_yields_errors_in_the_order_of_the_images(url: str, photos: Path) -> None:
    good = [photos / "b.jpg", photos / "a.PNG", photos / "turned.jpg"]
    images: list[Any] = [*good * 6, b"hello", photos / "missing.jpg", 7, *good * 6]
    with Client(url, connections=3) as client:
        alone = [client.detect(path) for path in good]
        results = list(client.detect_many(images))
    hello, missing, number = results[18:21]
    assert isinstance(hello, ServiceError)
    assert (hello.status, hello.code, hello.is_of_one_image) == (400, "undecodable_image", True)
    assert hello.request_id
    assert str(hello) == f"{hello.detail} (400 undecodable_image, request {hello.request_id})"
    assert isinstance(missing, InputError)
    assert str(missing) == f"{photos / 'missing.jpg'} cannot be read: No such file or directory"
    assert isinstance(number, InputError)
    assert str(number).endswith("got int")
    for found, expected in zip(results[:18] + results[21:], alone * 12, strict=True):
        assert isinstance(found, ImageDetections)
        assert (found.width, found.height) == (expected.width, expected.height)
        scores = [one.score for one in expected.detections]
        assert [one.score for one in found.detections] == pytest.approx(scores, abs=1e-5)


def test_sends_concurrent_requests_and_reads_images_as_needed() -> None:
    taken = 0
    together = threading.Barrier(3)

    def images() -> Iterator[bytes]:
        nonlocal taken
        for number in range(100):
            taken += 1
            yield str(number).encode()

    def answer(request: httpx.Request) -> httpx.Response:
        if int(request.content) < 3:
            together.wait(60)  # returns only for three concurrent requests
        return httpx.Response(200, json={**NOTHING, "width": int(request.content)})

    with faked(answer, connections=3) as client:
        results = client.detect_many(images())
        first = [next(results) for _ in range(5)]
        assert [found.width for found in first if isinstance(found, ImageDetections)] == [0, 1, 2, 3, 4]
        assert taken <= 5 + 2 * 3
        results.close()
    assert taken <= 5 + 2 * 3
    wait_until(lambda: not any(thread.name.startswith("lensbox-client") for thread in threading.enumerate()))


def test_close_ends_waits_and_sends_no_more_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = threading.Event()
    asked: list[bytes] = []

    def sleep_using_event(stopped: threading.Event) -> Callable[[float], None]:
        def sleep(seconds: float) -> None:
            waits.set()
            stopped.wait(60)

        return sleep

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.content)
        return httpx.Response(200, json=NOTHING) if request.content == b"0" else problem(503, "overloaded")

    monkeypatch.setattr("tenacity.sleep_using_event", sleep_using_event)
    with faked(answer, connections=2) as client:
        results = client.detect_many([b"0", b"1", b"2"])
        next(results)
        assert waits.wait(60)
        results.close()
        wait_until(lambda: not any(each.name.startswith("lensbox-client") for each in threading.enumerate()))
    assert len(asked) == len(set(asked))


@pytest.mark.parametrize(("boxes", "error"), [({1.0}, TypeError), ([[float("nan")] * 4], ValueError)])
def test_refuses_boxes_that_are_no_json(boxes: Any, error: type[Exception]) -> None:
    with Client("http://127.0.0.1:1") as client, pytest.raises(error):
        client.loss(boxes, [])


def test_numbers_of_a_loss_that_are_not_finite() -> None:
    found = TypeAdapter(LossAnswer).validate_json('{"loss": null, "slots": 1, "gradient": [[[null, 0]], []]}')
    assert (str(found.loss), str(found.gradient)) == ("nan", "[[[nan, 0]], []]")


# --- retries and errors ---


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record the waits before retries, without waiting."""
    seconds: list[float] = []
    monkeypatch.setattr("tenacity.sleep_using_event", lambda stopped: seconds.append)
    return seconds


def test_a_url_or_proxy_that_httpx_cannot_use_is_an_error_of_the_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("https_proxy", "ftp://user:secret@127.0.0.1:9")
    for url, words in (("http://127.0.0.1:8000", "ftp"), ("http://a\0b", "non-printable")):
        with pytest.raises(ServiceError, match=f"the environment's proxies and .*: .*{words}") as caught:
            Client(url)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("refused", "least"),
    [
        (httpx.RemoteProtocolError("Server disconnected"), 0),
        (problem(503, "overloaded", **{"Retry-After": "3"}), 3),
        (problem(429, "slow", **{"Retry-After": "Fri, 01 Jan 2010 00:00:00 GMT"}), 0),
    ],
)
def test_retries_after_a_wait_with_jitter(
    waits: list[float], refused: httpx.Response | Exception, least: float
) -> None:
    answer, requests = in_turn(refused, httpx.Response(200, json=NOTHING))
    with faked(answer) as client:
        client.detect(b"file")
    assert [request.content for request in requests] == [b"file"] * 2
    (wait,) = waits
    assert least + 0.25 <= wait <= least + 0.5


def overloaded(seconds: int) -> httpx.Response:
    return problem(503, "overloaded", "full", **{"Retry-After": str(seconds)})


@pytest.mark.parametrize(
    ("refused", "options", "tries", "message"),
    [
        (overloaded(1), {"retries": 4}, 5, "full (503 overloaded)"),
        (overloaded(3600), {"retries": 4}, 1, "full (503 overloaded)"),
        (problem(401, "no", "because"), {}, 1, "because (401 no)"),
        (problem(500, "no", **{"X-Request-ID": "r-7"}), {}, 1, "it is so (500 no, request r-7)"),
        (httpx.ReadTimeout("late"), {"timeout": 1.5}, 1, "gave no answer within 1.5 seconds (no_answer)"),
        (httpx.ConnectError("refused"), {}, 1, "cannot be reached: refused (no_answer)"),
        (UnicodeError("label too long"), {}, 1, "cannot be reached: label too long (no_answer)"),
    ],
)
def test_gives_up_with_the_reason(
    waits: list[float], refused: httpx.Response | Exception, options: Any, tries: int, message: str
) -> None:
    answer, requests = in_turn(*[refused] * 9)
    with faked(answer, **options) as client, pytest.raises(ServiceError) as caught:
        client.detect(b"file")
    where = "" if isinstance(refused, httpx.Response) else "http://service/below/ "
    assert str(caught.value) == where + message
    assert (len(requests), len(waits)) == (tries, tries - 1)
    status = caught.value.status
    assert (status is None, caught.value.is_of_one_image) == (bool(where), status in (400, 500))


def _drip(connection: socket.socket, begin: bytes) -> None:
    """Answer with a byte after the other, without end."""
    connection.recv(1 << 16)
    connection.sendall(begin)
    while True:
        connection.sendall(b"a")
        time.sleep(0.02)


def _sip(connection: socket.socket) -> None:
    """Take a little of a request after the other, for longer than the client's timeout."""
    for _ in range(200):
        connection.recv(1 << 18)
        time.sleep(0.005)


@pytest.mark.parametrize(
    ("serve", "keeps"),
    [
        (partial(_drip, begin=b"HTTP/1.1 200 OK\r\nA: "), False),
        (partial(_drip, begin=b"HTTP/1.1 200 OK\r\nA: "), True),
        (partial(_drip, begin=b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"), False),
        (_sip, False),
    ],
    ids=["head", "head on a used connection", "body", "upload"],
)
def test_the_timeout_bounds_a_whole_request(serve: Callable[[socket.socket], None], keeps: bool) -> None:
    def run() -> None:
        connection = listener.accept()[0]
        with connection, contextlib.suppress(OSError):  # the client closes the connection
            if keeps:
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            serve(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        served = pool.submit(run)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with Client(url, timeout=0.3, retries=0) as client:
            assert not keeps or client.alive()
            with pytest.raises(ServiceError, match="gave no answer within"):
                client.detect(bytes(1 << 26 if serve is _sip else 1))
        served.result(PATIENCE)


def test_rejects_answers_of_another_service() -> None:
    other = httpx.Response(200, json={"result": 1})
    for given, message in (
        (httpx.Response(502, text="<html>\n  Bad gateway</html>"), "502 Bad Gateway: '<html> Bad"),
        (httpx.Response(200, text="<html>welcome</html>"), "welcome"),
        (other, '"result":1'),
    ):
        with faked(in_turn(given)[0]) as client, pytest.raises(ServiceError, match=message) as caught:
            client.detect(b"file")
        assert caught.value.code == "unexpected_answer"
    with faked(in_turn(other, other)[0]) as client:
        for ask in (client.metadata, lambda: client.loss([[0, 0, 1, 1]], [[0, 0, 1, 1]])):
            with pytest.raises(ServiceError, match="unexpected_answer"):
                ask()


def test_health_checks_never_retry_or_raise() -> None:
    for given, expected in (
        (httpx.Response(200, json={}), True),
        (problem(503, "not_ready"), False),
        (httpx.ConnectError("refused"), False),
    ):
        answer, requests = in_turn(given, given)
        with faked(answer) as client:
            assert client.alive() is client.ready() is expected
        assert [request.url.path for request in requests] == ["/below/healthz", "/below/readyz"]


def test_names_the_extra_without_httpx() -> None:
    code = "import sys; sys.modules['httpx'] = None\nimport lensbox.client"
    assert "pip install 'lensbox[client]'" in run_python("-c", code, code=1).stderr
