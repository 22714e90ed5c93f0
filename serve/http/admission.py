"""Admission control: check once per request for room, also in an engine that other front ends use."""

import time
from collections.abc import Callable

from fastapi import Request

from lensbox.serve.errors import ApiError, OverloadError
from lensbox.serve.http.errors import RETRY_AFTER
from lensbox.serve.http.service import Service
from lensbox.serve.requests.futures import DEADLINE_HEADER, Deadline, deadline_of

_PAUSE = 0.02  # seconds without requests after a refusal, unless the engine answers
_FORGOTTEN = 1.0  # seconds after which a refusal is forgotten
_DECREASE = 0.75


def admit(service: Service, request: Request) -> None:
    """Shed load: admit or refuse a request, before its body is read. Count an admitted request.

    Store the client's deadline in the scope. Raises NotReadyError, OverloadError, and ApiError (422, 503).
    """
    deadline = deadline_of(request.headers.get(DEADLINE_HEADER))
    request.scope["lensbox.deadline"] = deadline
    _check_room(service, deadline)
    service.begin_request()


def _check_room(service: Service, deadline: Deadline) -> None:
    """Raise NotReadyError if the model is not ready, and ApiError (503) above `max_connections`.

    Raise OverloadError at `max_requests`, or if the engine has no room or cannot meet the deadline.
    """
    service.engine.ready_artifact()
    if service.connections.open > service.settings.max_connections:
        message = f"{service.connections.open} connections are open; try again later"
        raise ApiError(503, "overloaded", message, {**RETRY_AFTER, "Connection": "close"})
    if service.in_progress >= service.settings.max_requests:
        raise OverloadError(f"{service.in_progress} requests are already in progress; try again later")
    service.engine.check_room(deadline.at, service.in_progress)


class AdmissionWindow:
    """Limit the requests in progress of a front end, so that it decodes no image that the engine will refuse.

    Additive increase, multiplicative decrease (AIMD), as in TCP: one more request per round of answers, a
    quarter less per round with refusals. most: the window without refusals. clock: returns monotonic seconds.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._window = float(most)
        self._round = 0  # jobs in flight at the last decrease that have no result yet
        self._last = self._until = -1.0

    def has_room(self, requests: int) -> bool:
        """Return whether to admit a request while `requests` are in progress."""
        now = self._clock()
        if self._last < now - _FORGOTTEN:
            self._window, self._round = float(self._most), 0
        return now >= self._until and requests < self._window

    def refused(self, jobs: int) -> None:
        """Record that the engine had no room for one of the `jobs` in flight."""
        self._last = self._clock()
        self._until = self._last + _PAUSE
        if self._round:
            self._round -= 1
        else:
            self._window = max(1.0, _DECREASE * min(jobs, self._window))
            self._round = jobs - 1

    def answered(self) -> None:
        """Record that the engine has computed a job."""
        self._until = -1.0
        self._round = max(0, self._round - 1)
        self._window = min(self._most, self._window + 1 / self._window)
