"""One path of the service: an ASGI application with the rules for its requests, and admission control."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from fastapi import Request, Response
from msgspec import Struct
from starlette.types import Receive, Scope, Send

from lensbox.serve.errors import ApiError, OverloadError
from lensbox.serve.http.answers import json_response
from lensbox.serve.http.edge import RETRY_AFTER
from lensbox.serve.http.service import Service, model_of, service_of
from lensbox.serve.models.served import Served
from lensbox.serve.requests.futures import DEADLINE, DEADLINE_HEADER, deadline_of


@dataclass(frozen=True)
class Endpoint:
    """Answer the requests for one method of one path.

    answer: returns a response or what becomes JSON, or raises an exception (see `edge.answer_to`). is_open:
    requests need no API key. is_probe: requests are logged at debug level and not traced. is_admitted:
    requests pass admission control.

    For the OpenAPI document, beside the docstring of `answer`: tag ("" leaves the path out), answers (type of
    the answer), errors (their statuses), query (its parameters).
    """

    method: str
    path: str
    answer: Callable[[Request], Awaitable[Any]]
    tag: str = ""
    answers: type[Any] | None = None
    errors: tuple[int, ...] = ()
    query: type[Struct] | None = None
    is_open: bool = False
    is_probe: bool = False
    is_admitted: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = self  # for metrics and logs
        request = Request(scope, receive, send)
        if not self.is_open:
            request.app.state.keys.check(request.headers)
        service = service_of(request)
        served = admit(service, request) if self.is_admitted else None
        if served is not None:
            service.begin_request(served)
        try:
            answer = await self.answer(request)
            response = answer if isinstance(answer, Response) else json_response(answer)
            await response(scope, receive, send)
        finally:
            if served is not None:
                service.end_request(served)


def admit(service: Service, request: Request) -> Served:
    """Shed load: admit or refuse a request, before its body is read. Return the version of its model.

    The request holds this version to its end. Store it and the client's deadline in the scope, for
    `model_of`, for the headers of the answer, and for metrics. Raises NotReadyError; ApiError (404, 422; 503
    above `max_connections`); OverloadError at `max_requests`, or if the model has no room for the admitted
    requests whose jobs are still to come and for this one.
    """
    served = model_of(request)
    served.engine.ready_artifact()
    request.scope["lensbox.model"] = served
    request.scope[DEADLINE] = deadline_of(request.headers.get(DEADLINE_HEADER))
    if service.connections.open > service.settings.max_connections:
        message = f"{service.connections.open} connections are open; try again later"
        raise ApiError(503, "overloaded", message, {**RETRY_AFTER, "Connection": "close"})
    if service.in_progress >= service.settings.max_requests:
        raise OverloadError(f"{service.in_progress} requests are already in progress; try again later")
    if max(0, served.in_progress - served.engine.jobs) >= served.engine.room:
        raise OverloadError("the model's queue is full; try again later")
    return served
