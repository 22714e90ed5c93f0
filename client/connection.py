"""HTTP requests to a service, with retries, and their errors."""

import random
import threading
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

try:
    import httpx
    import tenacity
except ModuleNotFoundError as error:
    message = f"the Python package {error.name!r} is not installed: pip install 'lensbox[client]'"
    raise ModuleNotFoundError(message, name=error.name) from error

from lensbox.client.client import ServiceError
from lensbox.common.machine import package_version

_FIRST_WAIT = 0.25  # seconds before the second try; doubled with each
_LONGEST_WAIT = 60.0  # a longer Retry-After fails at once
# UnicodeError: the system's error for an invalid host name.
_NO_ANSWER = (httpx.RequestError, UnicodeError)
_BROKEN = (httpx.ReadError, httpx.WriteError, httpx.CloseError, httpx.RemoteProtocolError)
_SHOWN = 200  # characters of an unexpected answer in a message

Answer = TypeVar("Answer")


class Connection:
    """A pool of connections to one service, which threads may share. `Client` describes the arguments."""

    def __init__(
        self, url: str, api_key: str | None, timeout: float, retries: int, connections: int, transport: Any
    ) -> None:
        headers = {
            "User-Agent": f"lensbox-client/{package_version('lensbox')}",
            "X-Request-Timeout-Ms": str(round(1000 * timeout)),
            **({"Authorization": f"Bearer {api_key}"} if api_key else {}),
        }
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        try:
            self._http = httpx.Client(
                base_url=url, headers=headers, timeout=timeout, limits=limits, transport=transport
            )
        except (ImportError, ValueError, OSError, httpx.InvalidURL) as error:
            raise ServiceError(
                f"httpx must be able to use the URL and the environment's proxies and certificates: {error}"
            ) from error
        self._timeout, self._retries = timeout, retries
        self.close = self._http.close

    def is_ok(self, path: str) -> bool:
        """Return whether GET `path` answers 200. Does not retry."""
        try:
            return self._http.get(path).status_code == 200
        except _NO_ANSWER:
            return False

    def ask(
        self,
        read: TypeAdapter[Answer],
        method: str,
        path: str,
        stopped: threading.Event | None = None,
        **request: Any,
    ) -> Answer:
        """Send a request; return the successful answer as `read` reads it, or raise ServiceError.

        request: httpx's arguments. Retry after 503 or 429, after the seconds in `Retry-After` or with
        exponential back-off, and after a broken connection: all requests are idempotent. Setting `stopped`
        ends the retries.
        """
        stopped = stopped or threading.Event()
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_may_pass),
            stop=tenacity.stop_after_attempt(self._retries + 1),
            wait=_wait,
            sleep=tenacity.sleep_using_event(stopped),
            reraise=True,
        )
        response: httpx.Response = retrying(self._send, method, path, stopped, request)
        try:
            return read.validate_json(response.content)
        except ValidationError as error:
            detail = f"the answer does not come from a Lensbox service: {response.text[:_SHOWN]!r}"
            raise ServiceError(detail, "unexpected_answer", 200) from error

    def _send(self, method: str, path: str, stopped: threading.Event, request: Any) -> httpx.Response:
        if stopped.is_set():
            raise ServiceError("the caller stopped before the retry")
        service = self._http.base_url
        try:
            response = self._http.request(method, path, **request)
        except httpx.TimeoutException as error:
            raise ServiceError(f"{service} gave no answer within {self._timeout:g} seconds") from error
        except _NO_ANSWER as error:
            detail = f"{service} cannot be reached: {error or type(error).__name__}"
            raise ServiceError(detail, retry_after=0.0 if isinstance(error, _BROKEN) else None) from error
        if not response.is_success:
            raise _refusal(response)
        return response


def _may_pass(error: BaseException) -> bool:
    wait = error.retry_after if isinstance(error, ServiceError) else None
    return wait is not None and wait <= _LONGEST_WAIT


def _wait(state: tenacity.RetryCallState) -> float:
    """Return the seconds before the next try."""
    asked = getattr(state.outcome and state.outcome.exception(), "retry_after", 0.0)
    wait: float = max(_FIRST_WAIT * 2 ** (state.attempt_number - 1), asked)
    # Jitter: clients that were rejected together must not retry together.
    return wait * random.uniform(1.0, 1.25)


def _refusal(response: httpx.Response) -> ServiceError:
    status, asked = response.status_code, response.headers.get("Retry-After", "")
    seconds = float(asked) if asked.isdecimal() and asked.isascii() else 0.0
    try:
        problem = response.json()
        code, detail = str(problem["code"]), str(problem["detail"])
    except (ValueError, KeyError, TypeError):  # from a proxy
        text = " ".join(response.text.split())[:_SHOWN]
        code, detail = "unexpected_answer", f"the answer was {status} {response.reason_phrase}: {text!r}"
    request_id = response.headers.get("X-Request-ID")
    return ServiceError(detail, code, status, request_id, seconds if status in (429, 503) else None)
