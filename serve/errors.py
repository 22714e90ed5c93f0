"""Exceptions of engines and of requests, and the display of values in their messages."""

import reprlib
from collections.abc import Mapping

_shorten = reprlib.Repr()
_shorten.maxstring = _shorten.maxother = _shorten.maxlong = 60
_shorten.maxlist = _shorten.maxdict = 4
_shorten.maxlevel = 3


class OverloadError(Exception):
    """There is no room for another request."""


class NotReadyError(Exception):
    """The model is still loading, failed to load, or is out of use."""


class DeadlineError(Exception):
    """The deadline passed before the job was done."""


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


class HangUpError(Exception):
    """The client closed the connection before the answer was ready."""


def shown(value: object) -> str:
    """Return the `repr` of a client's value, shortened to about 60 characters."""
    return _shorten.repr(value)
