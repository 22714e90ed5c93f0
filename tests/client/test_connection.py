"""Retries, and errors of requests, with fake answers."""

import sys

import httpx
import pytest
from fake_transport import NOTHING, faked, in_turn, problem

from lensbox.client import Client, ServiceError


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
        (httpx.RemoteProtocolError("Server disconnected"), 0.25),
        (problem(429, "slow"), 0.25),
        (problem(503, "overloaded", **{"Retry-After": "3"}), 3),
        (problem(503, "overloaded", **{"Retry-After": "Fri, 01 Jan 2010 00:00:00 GMT"}), 0.25),
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
    assert least <= wait <= 1.25 * least


def test_limits_the_retries(waits: list[float]) -> None:
    for retries, seconds, tries in ((0, 1, 1), (4, 1, 5), (4, 3600, 1)):
        answer, requests = in_turn(*[problem(503, "overloaded", "full", **{"Retry-After": str(seconds)})] * 9)
        waits.clear()
        with faked(answer, retries=retries) as client, pytest.raises(ServiceError, match="full") as caught:
            client.detect(b"file")
        assert (len(requests), len(waits)) == (tries, tries - 1)
        assert (caught.value.status, caught.value.is_of_one_image) == (503, False)


def test_raises_without_an_answer(waits: list[float]) -> None:
    for error, words in (
        (httpx.ConnectError("refused"), "refused"),
        (httpx.ReadTimeout("late"), "gave no answer within 1.5 seconds"),
        (UnicodeError("label empty or too long"), "label empty"),
    ):
        answer, requests = in_turn(error)
        with faked(answer, timeout=1.5) as client, pytest.raises(ServiceError, match=words) as caught:
            client.detect(b"file")
        assert "http://service" in str(caught.value)
        assert str(caught.value).endswith(" (no_answer)")
        assert (caught.value.status, caught.value.is_of_one_image) == (None, False)
        assert len(requests) == 1


def test_does_not_retry_permanent_errors(waits: list[float]) -> None:
    for status in (400, 401, 500):
        answer, requests = in_turn(problem(status, "no", "because", **{"X-Request-ID": "r-7"}))
        with faked(answer) as client, pytest.raises(ServiceError) as caught:
            client.detect(b"file")
        error = caught.value
        assert (error.status, error.code, error.detail, error.request_id) == (status, "no", "because", "r-7")
        assert (error.is_of_one_image, len(requests)) == (status in (400, 500), 1)


def test_rejects_answers_of_another_service() -> None:
    other = httpx.Response(200, json={"result": 1})
    for given, message in (
        (httpx.Response(502, text="<html>\n  Bad gateway</html>"), "502 Bad Gateway: '<html> Bad"),
        (httpx.Response(200, text="<html>welcome</html>"), "welcome"),
        (other, '"result":1'),
        (httpx.Response(200, json=[1]), r"\[1\]"),
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


def test_names_the_extra_without_httpx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    monkeypatch.delitem(sys.modules, "lensbox.client.connection", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'lensbox\[client\]'"):
        Client("http://a")
