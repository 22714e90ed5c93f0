"""HTTP requests to a service, with retries."""

import email.utils
import importlib.metadata
import os
import random
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import httpx

from lensbox.client.answers import SHOWN, ServiceError, unexpected

_FIRST_WAIT = 0.25  # seconds before the second try; doubled with each
_LONGEST_WAIT = 60.0  # a longer Retry-After fails at once
_AGAIN = (429, 503)
# UnicodeError: the system's error for an invalid host name.
_NO_ANSWER = (httpx.RequestError, UnicodeError)
_BROKEN = (httpx.ReadError, httpx.WriteError, httpx.CloseError, httpx.RemoteProtocolError)

# Variables of the environment, in capitals; httpx reads proxies in small letters, too.
_PROXIES = ("ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_CERTIFICATES = ("SSL_CERT_DIR", "SSL_CERT_FILE")

Typed = TypeVar("Typed")


class Connection:
    """A connection pool to one service. Thread-safe.

    url, api_key, timeout, retries, connections: see `Client`. transport: httpx's, for tests.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None,
        timeout: float,
        retries: int,
        connections: int,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        headers = {"User-Agent": f"lensbox-client/{_version()}"}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        try:
            base = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise ValueError(f"url must be a URL: {error}, got {url!r}") from error
        try:
            self._http = httpx.Client(
                base_url=base,
                headers=headers,
                timeout=timeout,
                limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
                transport=transport,
            )
        except (ImportError, ValueError, OSError, httpx.InvalidURL) as error:
            raise _unusable_environment(error) from error
        self._proxy = _proxy_of(base)
        self.timeout = timeout
        self._retries = retries

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def status(self, path: str) -> int | None:
        """Return the status of GET `path`, without retries; None without an answer."""
        try:
            return self._http.get(path).status_code
        except _NO_ANSWER:
            return None

    def ask(
        self,
        read: Callable[[Any], Typed],
        method: str,
        path: str,
        stopped: threading.Event | None = None,
        *,
        content: bytes | None = None,
        json: Any = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> Typed:
        """Send a request; return the JSON of a successful answer, parsed by `read`, or raise ServiceError.

        content or json: the body. Retry up to `retries` times after 503 or 429, after the seconds in
        `Retry-After` or with exponential back-off, and after a broken connection: all requests are
        idempotent. Setting `stopped` ends the retries.
        """
        headers = {"X-Request-Timeout-Ms": str(max(1, round(1000 * self.timeout)))}
        for attempt in range(self._retries + 1):
            wait = _FIRST_WAIT * 2**attempt
            try:
                response = self._http.request(
                    method, path, content=content, json=json, params=parameters, headers=headers
                )
            except _NO_ANSWER as error:
                failure = self._no_answer(error)
                if not isinstance(error, _BROKEN):
                    raise failure from error
            else:
                if response.is_success:
                    return _parsed(response, read)
                failure = _failure(response)
                if response.status_code not in _AGAIN:
                    raise failure
                wait = max(wait, _retry_after(response))
            # Jitter: clients that were rejected together must not retry together.
            wait *= random.uniform(1.0, 1.25)
            is_last = attempt == self._retries or wait > _LONGEST_WAIT
            if is_last or wait_or_stop(wait, stopped):
                raise failure
        raise AssertionError("the last attempt returns or raises")

    def _no_answer(self, error: Exception) -> ServiceError:
        if isinstance(error, httpx.TimeoutException):
            detail = f"{self._http.base_url} gave no answer within {self.timeout:g} seconds"
        else:
            through = f" through the proxy in {self._proxy}" if self._proxy else ""
            detail = f"{self._http.base_url} cannot be reached{through}: {error or type(error).__name__}"
        return ServiceError(None, "no_answer", detail)


def _unusable_environment(error: Exception) -> ServiceError:
    """Return the error for proxies or certificates that httpx cannot use."""
    kind, variables = ("certificates", _CERTIFICATES) if isinstance(error, OSError) else ("a proxy", _PROXIES)
    names = [name for name in sorted(os.environ) if name.upper() in variables and os.environ[name]]
    detail = f"{' and '.join(names) or 'the environment'} must name {kind} that httpx can use: {error}"
    return ServiceError(None, "no_answer", detail)


def _proxy_of(url: httpx.URL) -> str | None:
    """Return the variable with the proxy to a host, for messages; None without a proxy."""
    if urllib.request.proxy_bypass(url.host):
        return None
    names = (
        name for scheme in (url.scheme, "all") for name in (f"{scheme}_proxy", f"{scheme}_PROXY".upper())
    )
    return next((name for name in names if os.environ.get(name)), None)


def wait_or_stop(seconds: float, stopped: threading.Event | None) -> bool:
    """Wait before a retry; return whether the caller has stopped meanwhile."""
    return (stopped or threading.Event()).wait(seconds)


def _parsed(response: httpx.Response, read: Callable[[Any], Typed]) -> Typed:
    try:
        document = response.json()
    except ValueError as error:
        raise unexpected(response.text) from error
    try:
        return read(document)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise unexpected(document) from error


def _failure(response: httpx.Response) -> ServiceError:
    request_id = response.headers.get("X-Request-ID")
    try:
        problem = response.json()
        return ServiceError(response.status_code, str(problem["code"]), str(problem["detail"]), request_id)
    except (ValueError, KeyError, TypeError):  # from a proxy
        text = " ".join(response.text.split())[:SHOWN]
        detail = f"the answer was {response.status_code} {response.reason_phrase}: {text!r}"
        return ServiceError(response.status_code, "unexpected_answer", detail, request_id)


def _retry_after(response: httpx.Response) -> float:
    """Return the seconds of `Retry-After`, a number or a date; 0 if it is neither."""
    text = response.headers.get("Retry-After", "")
    if text.isdecimal() and text.isascii():
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0.0


def _version() -> str:
    try:
        return importlib.metadata.version("lensbox")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
