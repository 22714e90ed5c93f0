"""Admission control: find the model of a request, and ask once whether there is room."""

from fastapi import Request

from lensbox.serve.errors import ApiError, OverloadError
from lensbox.serve.http.errors import RETRY_AFTER
from lensbox.serve.http.service import Service, model_of
from lensbox.serve.models.served import Served
from lensbox.serve.requests.futures import DEADLINE, DEADLINE_HEADER, Deadline, deadline_of


def admit(service: Service, request: Request) -> Served:
    """Shed load: admit or refuse a request, before its body is read. Return the version of its model.

    The request holds this version to its end. Store it and the client's deadline in the scope, for
    `model_of`, for the headers of the answer, and for metrics. Raises NotReadyError, OverloadError, and
    ApiError (404, 422, 503).
    """
    served = model_of(request)
    served.engine.ready_artifact()
    request.scope["lensbox.model"] = served
    request.scope[DEADLINE] = deadline = deadline_of(request.headers.get(DEADLINE_HEADER))
    _check_room(service, served, deadline)
    return served


def _check_room(service: Service, served: Served, deadline: Deadline) -> None:
    """Raise ApiError (503) above `max_connections`.

    Raise OverloadError at `max_requests`, or if the engine has no room or cannot meet the deadline.
    """
    if service.connections.open > service.settings.max_connections:
        message = f"{service.connections.open} connections are open; try again later"
        raise ApiError(503, "overloaded", message, {**RETRY_AFTER, "Connection": "close"})
    if service.in_progress >= service.settings.max_requests:
        raise OverloadError(f"{service.in_progress} requests are already in progress; try again later")
    served.engine.check_room(deadline.at, served.in_progress)
