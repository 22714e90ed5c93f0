"""The time limit of a request: one deadline, which cancels all that the request waits for."""

import asyncio
import math
import time
from types import TracebackType

from starlette.datastructures import Headers

from lensbox.serve.errors import ApiError, DeadlineError, shortened

LIMIT = "lensbox.limit"  # key of the ASGI scope
_HEADER = "X-Request-Timeout-Ms"
_MOST_MILLISECONDS = 86_400_000  # a day


class TimeLimit:
    """Cancel the current task at a deadline, and raise the deadline's error in its place.

    The client's own time, if there is one, holds from the beginning on; `set` adds a limit of the service.
    A hang-up of the client cancels the task, too (`http.connection`), so nothing else watches for it.
    """

    def __init__(self, seconds: float = math.inf) -> None:
        self.at = math.inf  # of `time.monotonic`
        self._client = time.monotonic() + seconds, seconds
        self._error: ApiError | None = None
        self._is_over = False
        self._timer: asyncio.TimerHandle | None = None

    def set(self, seconds: float, error: ApiError | None = None) -> None:
        """Let the time end after some seconds, or at the client's deadline if that is sooner.

        error: by default a DeadlineError.
        """
        at, text = time.monotonic() + seconds, "no answer within %g seconds; try again later"
        self.at, self._error = at, error or DeadlineError(text % seconds)
        if self._client[0] < at:
            self.at, self._error = self._client[0], DeadlineError(text % self._client[1])
        if self._timer is not None:
            self._timer.cancel()
        left = max(0.0, self.at - time.monotonic())
        if left < math.inf:
            self._timer = asyncio.get_running_loop().call_later(left, self._expire)

    def sooner(self, seconds: float) -> None:
        """Let the time end earlier, if `seconds` from now is earlier."""
        if time.monotonic() + seconds < self.at:
            self.set(seconds)

    def __enter__(self) -> "TimeLimit":
        self._task = asyncio.current_task()
        self.set(math.inf)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._is_over and kind is asyncio.CancelledError and self._error is not None:
            if self._task is not None and hasattr(self._task, "uncancel"):  # from Python 3.11 on
                self._task.uncancel()
            raise self._error from None

    def _expire(self) -> None:
        self._is_over = True
        if self._task is not None:
            self._task.cancel()


def time_limit(headers: Headers) -> TimeLimit:
    """Return the limit in the header X-Request-Timeout-Ms.

    Raise ApiError (422) unless it is a whole number of milliseconds from 1 to a day.
    """
    text = headers.get(_HEADER)
    if text is None:
        return TimeLimit()
    milliseconds = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
    if not 1 <= milliseconds <= _MOST_MILLISECONDS:
        rule = f"must be a whole number of milliseconds from 1 to {_MOST_MILLISECONDS}"
        raise ApiError(422, "invalid_parameter", f"{_HEADER} {rule}, got {shortened(text)}")
    return TimeLimit(milliseconds / 1000)
