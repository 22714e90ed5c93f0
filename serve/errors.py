"""Exceptions of engines and of requests, and the display of values in their messages."""

import reprlib
from collections.abc import Mapping

from lensbox.common.errors import ExitCode, LensboxError

RETRY_AFTER = {"Retry-After": "1"}  # seconds; a full queue empties within one
_shorten = reprlib.Repr()
_shorten.maxstring = _shorten.maxother = _shorten.maxlong = 60
_shorten.maxlist = _shorten.maxdict = 4
_shorten.maxlevel = 3


class StartupError(LensboxError, RuntimeError):
    """The service cannot start; the message says why and what to do."""

    exit_code = ExitCode.UNUSABLE


class ApiError(Exception):
    """An error answer.

    status: HTTP status. code: a stable word for programs. message: a sentence for people that names the
    argument, the rule and the value received. headers: further headers of the answer.
    """

    def __init__(
        self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = headers


class OverloadError(ApiError):
    """There is no room for another request."""

    def __init__(self, message: str) -> None:
        super().__init__(503, "overloaded", message, RETRY_AFTER)


class NotReadyError(ApiError):
    """The model is still loading, failed to load, or is out of use."""

    def __init__(self, message: str) -> None:
        super().__init__(503, "not_ready", message, RETRY_AFTER)


class DeadlineError(ApiError):
    """The deadline passed before the job was done."""

    def __init__(self, message: str) -> None:
        super().__init__(504, "deadline_exceeded", message)


def shortened(value: object) -> str:
    """Return the `repr` of a client's value, shortened to about 60 characters."""
    return _shorten.repr(value)
