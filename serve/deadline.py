"""Until when a request is to be answered."""

import math
import time
from dataclasses import dataclass

from fastapi import Request

from lensbox.serve.engine.errors import DeadlineError
from lensbox.serve.errors import ApiError, shown

HEADER = "X-Request-Timeout-Ms"
_MOST = 86_400_000  # a day


@dataclass(frozen=True)
class Deadline:
    """at: on the clock of `time.monotonic`. seconds: the time that there was from the start, for messages."""

    at: float
    seconds: float

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """The one that many seconds from now."""
        return cls(time.monotonic() + seconds, seconds)

    @property
    def left(self) -> float:
        """Seconds that are left, at least 0."""
        return max(0.0, self.at - time.monotonic())

    def error(self) -> DeadlineError:
        """What ends a request that is late."""
        return DeadlineError(f"no answer within {self.seconds:g} seconds; try again later")


NO_DEADLINE = Deadline(math.inf, math.inf)


def clients_deadline(request: Request) -> Deadline:
    """What the client asks for in X-Request-Timeout-Ms, as `deadline_of`."""
    return deadline_of(request.headers.get(HEADER))


def deadline_of(text: str | None) -> Deadline:
    """The deadline that a value of X-Request-Timeout-Ms means, from now on; NO_DEADLINE without one.

    Raises ApiError (422) unless it is a whole number from 1 to a day's milliseconds.
    """
    if text is None:
        return NO_DEADLINE
    # isdecimal takes the digits of all scripts, and int reads them; ten digits are more than a day has.
    milliseconds = int(text) if text.isdecimal() and len(text) < 10 else 0
    if not 1 <= milliseconds <= _MOST:
        rule = f"must be a whole number of milliseconds from 1 to {_MOST}"
        raise ApiError(422, "invalid_parameter", f"{HEADER} {rule}, got {shown(text)}")
    return Deadline.after(milliseconds / 1000)
