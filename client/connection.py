"""HTTP requests to a service, with retries, and their errors."""

import random
import threading
from collections.abc import Callable
from typing import Any, TypeVar

try:
    import httpx
    from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt
except ModuleNotFoundError as error:
    message = f"the Python package {error.name!r} is not installed: pip install 'lensbox[client]'"
    raise ModuleNotFoundError(message, name=error.name) from error

from lensbox.client.answers import ServiceError
from lensbox.common.machine import package_version

_FIRST_WAIT = 0.25  # seconds before the second try; doubled with each
_LONGEST_WAIT = 60.0  # a longer Retry-After fails at once
# UnicodeError: the system's error for an invalid host name.
_NO_ANSWER = (httpx.RequestError, UnicodeError)
_BROKEN = (httpx.ReadError, httpx.WriteError, httpx.CloseError, httpx.RemoteProtocolError)
_SHOWN = 200  # characters of an unexpected answer in a message

Typed = TypeVar("Typed")


class Connection:
    """A pool of connections to one service, which threads may share. `Client` describes the arguments."""

    def __init__(
        self, url: str, api_key: str | None, timeout: float, retries: int, connections: int, transport: Any
    ) -> None:
        headers = {
            "User-Agent": f"lensbox-client/{package_version('lensbox')}",
            "X-Request-Timeout-Ms": str(max(1, round(1000 * timeout))),
        }
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        try:
            self._http = httpx.Client(
                base_url=url, headers=headers, timeout=timeout, limits=limits, transport=transport
            )
        except (ImportError, ValueError, OSError, httpx.InvalidURL) as error:
            detail = (
                f"httpx must be able to use the URL and the environment's proxies and certificates: {error}"
            )
            raise ServiceError(None, "no_answer", detail) from error
        self._timeout = timeout
        self._retries = retries
        self.close = self._http.close

    def is_ok(self, path: str) -> bool:
        """Return whether GET `path` answers 200. Does not retry."""
        try:
            return self._http.get(path).status_code == 200
        except _NO_ANSWER:
            return False

    def ask(
        self,
        read: Callable[[Any], Typed],
        method: str,
        path: str,
        stopped: threading.Event | None = None,
        **request: Any,
    ) -> Typed:
        """Send a request; return the JSON of a successful answer, parsed by `read`, or raise ServiceError.

        request: httpx's arguments. Retry after 503 or 429, after the seconds in `Retry-After` or with
        exponential back-off, and after a broken connection: all requests are idempotent. Setting `stopped`
        ends the retries.
        """
        retrying = Retrying(
            retry=retry_if_exception(_may_pass),
            stop=stop_after_attempt(self._retries + 1),
            wait=_wait,
            sleep=lambda seconds: pause(seconds, stopped or threading.Event()),
            reraise=True,
        )
        answer: Typed = retrying(self._ask_once, read, method, path, request)
        return answer

    def _ask_once(self, read: Callable[[Any], Typed], method: str, path: str, request: Any) -> Typed:
        try:
            response = self._http.request(method, path, **request)
        except httpx.TimeoutException as error:
            detail = f"{self._http.base_url} gave no answer within {self._timeout:g} seconds"
            raise ServiceError(None, "no_answer", detail) from error
        except _NO_ANSWER as error:
            detail = f"{self._http.base_url} cannot be reached: {error or type(error).__name__}"
            retry_after = 0.0 if isinstance(error, _BROKEN) else None
            raise ServiceError(None, "no_answer", detail, retry_after=retry_after) from error
        if not response.is_success:
            raise _failure(response)
        try:
            return read(response.json())
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            detail = f"the answer does not come from a Lensbox service: {response.text[:_SHOWN]!r}"
            raise ServiceError(200, "unexpected_answer", detail) from error


def pause(seconds: float, stopped: threading.Event) -> None:
    """Wait before a retry. Raise ServiceError if the caller has stopped meanwhile."""
    if stopped.wait(seconds):
        raise ServiceError(None, "no_answer", "the caller stopped before the retry")


def _may_pass(error: BaseException) -> bool:
    wait = error.retry_after if isinstance(error, ServiceError) else None
    return wait is not None and wait <= _LONGEST_WAIT


def _wait(state: RetryCallState) -> float:
    """Return the seconds before the next try."""
    error = state.outcome and state.outcome.exception()
    asked = isinstance(error, ServiceError) and error.retry_after
    wait: float = max(_FIRST_WAIT * 2 ** (state.attempt_number - 1), asked or 0.0)
    # Jitter: clients that were rejected together must not retry together.
    return wait * random.uniform(1.0, 1.25)


def _failure(response: httpx.Response) -> ServiceError:
    status, asked = response.status_code, response.headers.get("Retry-After", "")
    seconds = float(asked) if asked.isdecimal() and asked.isascii() else 0.0
    try:
        problem = response.json()
        code, detail = str(problem["code"]), str(problem["detail"])
    except (ValueError, KeyError, TypeError):  # from a proxy
        text = " ".join(response.text.split())[:_SHOWN]
        code, detail = "unexpected_answer", f"the answer was {status} {response.reason_phrase}: {text!r}"
    request_id = response.headers.get("X-Request-ID")
    return ServiceError(status, code, detail, request_id, seconds if status in (429, 503) else None)
