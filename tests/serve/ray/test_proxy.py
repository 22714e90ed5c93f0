"""Answers of Ray's proxies if the replica did not answer."""

import asyncio
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from lensbox.serve.ray.proxy import middlewares


def ask(app: Any, method: str, path: str) -> httpx.Response:
    """Return the answer of an app wrapped in the middleware."""
    wrapped = Starlette(middleware=middlewares())
    wrapped.router.default = app

    async def send() -> httpx.Response:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(wrapped), base_url="http://test"
        ) as client:
            return await client.request(method, path)

    return asyncio.run(send())


async def silent(scope: Scope, receive: Receive, send: Send) -> None:
    """Fail as Ray's proxy does when a replica has died."""


async def head_alone(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})


@pytest.mark.parametrize("app", [silent, head_alone])
def test_answers_503_if_the_replica_did_not_answer(app: Any) -> None:
    answer, v2 = ask(app, "POST", "/v1/detect"), ask(app, "POST", "/v2/models/a/infer")
    assert (answer.status_code, v2.status_code) == (503, 503)
    assert answer.headers["Retry-After"] == v2.headers["Retry-After"] == "1"
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["code"] == "not_ready"
    assert list(v2.json()) == ["error"]


def test_passes_answers_unchanged() -> None:
    answer = ask(PlainTextResponse("a", 418, {"X-Kept": "1"}), "GET", "/")
    assert (answer.status_code, answer.text, answer.headers["X-Kept"]) == (418, "a", "1")
    assert ask(StreamingResponse(iter(["a", "b", ""])), "GET", "/").text == "ab"
