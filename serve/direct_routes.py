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


class Endpoint(NamedTuple):
    """An endpoint of POST, and the models of its query parameters by their names."""

    route: APIRoute
    queries: Mapping[str, Callable[[], BaseModel]]


class Found(NamedTuple):
    """An endpoint, and what a path has in the places of its parameters."""

    endpoint: Endpoint
    parts: Mapping[str, str]


class DirectEndpoints:
    """The endpoints of POST among `routes`.

    They take the request, parts of the path as text, and models of query parameters that all have defaults;
    they return a response.
    """

    def __init__(self, routes: Iterable[BaseRoute]) -> None:
        self._endpoints = [
            Endpoint(route, _query_models(route.endpoint))
            for route in routes
            if isinstance(route, APIRoute) and route.methods == {"POST"}
        ]

    def find(self, path: str) -> Found | None:
        """The one for a path."""
        for endpoint in self._endpoints:
            if (matched := endpoint.route.path_regex.match(path)) is not None:
                return Found(endpoint, matched.groupdict())
        return None


class DirectRoutes:
    """Middleware for FastAPI, which calls `endpoints` where it can, and leaves all else to it.

    handlers: answer what an endpoint raises, by its type, as FastAPI has them.
    """

    def __init__(
        self, app: ASGIApp, endpoints: DirectEndpoints, handlers: Mapping[Any, Callable[..., Any]]
    ) -> None:
        self._app = app
        self._endpoints = endpoints
        self._handlers = handlers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_plain = scope["type"] == "http" and scope["method"] == "POST" and not scope["query_string"]
        found = self._endpoints.find(scope["path"]) if is_plain and not scope.get("root_path") else None
        if found is None:
            await self._app(scope, receive, send)
        else:
            await self._answer(found, scope, receive, send)

    async def _answer(self, found: Found, scope: Scope, receive: Receive, send: Send) -> None:
        (route, queries), parts = found
        scope["route"] = route
        request = Request(scope, receive, send)
        try:
            models = {name: model() for name, model in queries.items()}
            response = await route.endpoint(request, **parts, **models)
        except Exception as error:
            handler = next((self._handlers[kind] for kind in _kinds(error) if kind in self._handlers), None)
            if handler is None:
                raise
            response = await handler(request, error)
        await response(scope, receive, send)


def _query_models(endpoint: Callable[..., Any]) -> dict[str, Callable[[], BaseModel]]:
    found: dict[str, Callable[[], BaseModel]] = {}
    for name, parameter in inspect.signature(endpoint).parameters.items():
        model = (*get_args(parameter.annotation), None)[0]
        if isinstance(model, type) and issubclass(model, BaseModel):
            found[name] = model
    return found


def _kinds(error: Exception) -> list[type]:
    """The types of an exception, but for the one of all: of a defect FastAPI tells the server, too."""
    return [kind for kind in type(error).__mro__ if kind is not Exception]
