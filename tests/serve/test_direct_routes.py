"""Endpoints that are called without FastAPI's way to them answer as they do by it."""

from collections.abc import Callable
from typing import Annotated, Any

import httpx
import pytest
from fastapi import FastAPI, Query, Request
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from lensbox.serve.direct_routes import DirectEndpoints, DirectRoutes
from lensbox.serve.errors import ApiError, add_error_handlers
from lensbox.serve.schemas import DetectParameters


def _app(ways: list[str]) -> FastAPI:
    """An app that notes whether its endpoint was called by FastAPI or directly."""
    app = FastAPI()
    add_error_handlers(app)

    @app.post("/things/{name}")
    async def thing(
        request: Request, parameters: Annotated[DetectParameters, Query()], name: str
    ) -> JSONResponse:
        ways.append("FastAPI" if "fastapi_inner_astack" in request.scope else "direct")
        body = await request.body()
        if body == b"wrong":
            raise ApiError(418, "teapot", f"{name} must be right")
        if body == b"defect":
            raise RuntimeError("a secret")
        route = request.scope["route"].path
        return JSONResponse({"name": name, "threshold": parameters.score_threshold, "route": route})

    @app.get("/things/{name}")
    async def look(name: str) -> str:
        return name

    app.add_middleware(DirectRoutes, endpoints=DirectEndpoints(app.routes), handlers=app.exception_handlers)
    return app


@pytest.mark.parametrize("body", [b"", b"wrong", b"defect"])
def test_both_ways_answer_alike(start_app: Callable[[FastAPI], httpx.Client], body: bytes) -> None:
    ways: list[str] = []
    client = start_app(_app(ways))
    direct = client.post("/things/a%20b", content=body)
    by_fastapi = client.post("/things/a%20b?orientation=exif", content=body)
    assert ways == ["direct", "FastAPI"]
    assert direct.status_code == by_fastapi.status_code == {b"": 200, b"wrong": 418, b"defect": 500}[body]
    assert direct.content == by_fastapi.content
    dated = {"date"}
    assert {n: v for n, v in direct.headers.items() if n not in dated} == {
        n: v for n, v in by_fastapi.headers.items() if n not in dated
    }


def test_all_else_is_left_to_fastapi(start_app: Callable[[FastAPI], httpx.Client]) -> None:
    ways: list[str] = []
    client = start_app(_app(ways))
    assert client.get("/things/a").json() == "a"
    assert client.post("/other").status_code == 404
    assert client.put("/things/a").status_code == 405
    assert client.post("/things/a?score_threshold=2").status_code == 422
    assert client.post("/things/a?score_threshold=0.5").json()["threshold"] == 0.5
    assert ways == ["FastAPI"]


def test_the_endpoints_of_the_service_are_called_directly(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def handle(*_: Any) -> None:
        raise AssertionError("by way of FastAPI")

    name = client.get("/v1/model").json()["name"]
    monkeypatch.setattr(APIRoute, "handle", handle)
    assert client.post("/v1/detect?orientation=exif", content=b"no image").status_code == 500
    statuses = {
        path: client.post(path, content=b"no image").status_code
        for path in ("/v1/detect", "/v1/evaluate", "/v1/loss", f"/v2/models/{name}/infer")
    }
    assert set(statuses.values()) == {400, 415, 422}, statuses
