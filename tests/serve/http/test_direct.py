"""Endpoints that are called without FastAPI answer as with it."""

import asyncio

import httpx
import pytest
from fastapi import FastAPI, Request, Response
from starlette.requests import ClientDisconnect

from lensbox.serve.engine.errors import DeadlineError, NotReadyError, OverloadError
from lensbox.serve.http.direct import Direct
from lensbox.serve.http.errors import add_error_handlers
from lensbox.serve.requests.errors import ApiError, HangUpError


def _answers(error: Exception | None, method: str) -> tuple[list[httpx.Response], list[bool]]:
    """Return the answers at the path and below a root_path, and which of them FastAPI's router passed on."""
    routed = []

    async def endpoint(request: Request) -> Response:
        routed.append("router" in request.scope)
        if error is not None:
            raise error
        return Response("fine", headers={"Retry-After": "1"})

    app = FastAPI()
    app.add_api_route("/v1/detect", endpoint, methods=["POST"], response_model=None)
    add_error_handlers(app)
    transport = httpx.ASGITransport(Direct(app, app.routes), root_path="/below")

    async def ask() -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            paths = ("/v1/detect", "/below/v1/detect")
            return [await client.request(method, path) for path in paths]

    return asyncio.run(ask()), routed


@pytest.mark.parametrize(
    "error",
    [
        None,
        ApiError(422, "code", "message", {"Connection": "close"}),
        OverloadError("full"),
        NotReadyError("loading"),
        DeadlineError("late"),
        HangUpError(),
        ClientDisconnect(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_answers_as_fastapi_does(error: Exception | None) -> None:
    (direct, below), routed = _answers(error, "POST")
    assert routed == [False, True]
    assert direct.status_code == below.status_code
    assert direct.headers == below.headers
    assert direct.content == below.content


def test_fastapi_answers_other_methods() -> None:
    answers, routed = _answers(None, "GET")
    assert [(answer.status_code, answer.headers["allow"]) for answer in answers] == [(405, "POST")] * 2
    assert not routed
