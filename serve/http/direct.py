"""Call the endpoints of photographs and boxes directly: FastAPI's routing and dependencies take longer."""

from collections.abc import Iterable

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from lensbox.serve.http.errors import answer_of


class Direct:
    """Answer POST requests to the paths of some routes without FastAPI. Pass on all other requests.

    FastAPI keeps these routes, too: they are in the OpenAPI document, and answer below a `root_path`.
    routes: of FastAPI, without parameters in their paths. Their endpoints take a request, return a response.
    """

    def __init__(self, app: ASGIApp, routes: Iterable[BaseRoute]) -> None:
        self._app = app
        self._routes = {route.path: route for route in routes if isinstance(route, APIRoute)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._routes.get(scope["path"]) if scope["type"] == "http" else None
        if route is None or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        scope["route"] = route  # for metrics and logs
        response = await answer_of(route.endpoint, Request(scope, receive))
        await response(scope, receive, send)
