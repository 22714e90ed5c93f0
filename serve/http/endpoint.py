"""One path of the service: an ASGI application with the rules for its requests."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from fastapi import Request, Response
from msgspec import Struct
from starlette.types import Receive, Scope, Send

from lensbox.serve.http.admission import admit
from lensbox.serve.http.answers import json_response
from lensbox.serve.http.service import service_of


@dataclass(frozen=True)
class Endpoint:
    """Answer the requests for one method of one path.

    answer: returns a response or what becomes JSON, or raises an exception (see `errors.answer_to`). is_open:
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
