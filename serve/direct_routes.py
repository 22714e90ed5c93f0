"""The endpoints that do the work, called without the way that FastAPI has to them.

FastAPI looks through its routes and declared parameters anew for every request, which takes several times as
long as to refuse one. Where a request has no query there is nothing to look for.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, get_args

from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.requests import Request
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send


class _Endpoint(NamedTuple):
    """An endpoint of POST, and the models of its query parameters by their names."""

    route: APIRoute
    queries: Mapping[str, Callable[[], BaseModel]]


class DirectRoutes:
    """Middleware for FastAPI, which calls the endpoints of POST among `routes`, and leaves all else to it.

    These endpoints take the request, parts of the path as text, and models of query parameters that all have
    defaults; they return a response. handlers: answer what they raise, by its type, as FastAPI has them.
    """

    def __init__(
        self, app: ASGIApp, routes: Iterable[BaseRoute], handlers: Mapping[Any, Callable[..., Any]]
    ) -> None:
        self._app = app
        self._handlers = handlers
        self._endpoints = [
            _Endpoint(route, _query_models(route.endpoint))
            for route in routes
            if isinstance(route, APIRoute) and route.methods == {"POST"}
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] != "http"
            or scope["method"] != "POST"
            or scope["query_string"]
            or scope.get("root_path")
        ):
            await self._app(scope, receive, send)
            return
        for endpoint in self._endpoints:
            if (matched := endpoint.route.path_regex.match(scope["path"])) is not None:
                await self._answer(endpoint, matched.groupdict(), scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _answer(
        self, endpoint: _Endpoint, parts: Mapping[str, str], scope: Scope, receive: Receive, send: Send
    ) -> None:
        scope["route"] = endpoint.route
        request = Request(scope, receive, send)
        queries = {name: model() for name, model in endpoint.queries.items()}
        try:
            response = await endpoint.route.endpoint(request, **parts, **queries)
        except Exception as error:
            handler = next((self._handlers[kind] for kind in _kinds(error) if kind in self._handlers), None)
            if handler is None:
                raise
            response = await handler(request, error)
        await response(scope, receive, send)


def _query_models(endpoint: Callable[..., Any]) -> dict[str, Callable[[], BaseModel]]:
    found = {}
    for name, parameter in inspect.signature(endpoint).parameters.items():
        model = (*get_args(parameter.annotation), None)[0]
        if isinstance(model, type) and issubclass(model, BaseModel):
            found[name] = model
    return found


def _kinds(error: Exception) -> list[type]:
    """The types of an exception, but for the one of all: of a defect FastAPI tells the server, too."""
    return [kind for kind in type(error).__mro__ if kind is not Exception]
