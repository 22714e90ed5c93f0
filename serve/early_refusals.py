"""Refuses requests by their heads alone, below ASGI, while there is no room for them.

Once more comes than can be done, what refusals cost is what is missing for answers. So none of them starts a
task, and their bodies are neither kept nor waited for.
"""

import functools
import time
from typing import Any

from lensbox.serve.app import App
from lensbox.serve.deadline import HEADER as DEADLINE
from lensbox.serve.deadline import deadline_of
from lensbox.serve.early_protocol import RequestHead
from lensbox.serve.engine.errors import NotReadyError, OverloadError
from lensbox.serve.errors import ApiError, overloaded
from lensbox.serve.observability.logs import CURRENT, HEADER, request_ids
from lensbox.serve.observability.middleware import report
from lensbox.serve.security.headers import security_headers
from lensbox.serve.service import Service

_DEADLINE = DEADLINE.lower().encode()
# Who waits for leave to send a body, and scripts of pages elsewhere, are told more: the app does that.
_LEFT_TO_THE_APP = frozenset({b"expect", b"origin"})


def early_refusal(app: App, head: RequestHead) -> bytes | None:
    """The answer to a request that `app` would refuse for want of room, behind its first lines, which are
    the server's; None: let the app answer.

    Whether the request has a key, and comes too often, is not looked at: that is for when there is room.
    """
    service: Service | None = getattr(app.state, "service", None)
    if head.method != b"POST" or service is None or app.is_traced:
        return None
    begun = time.perf_counter()
    try:
        service.check_room(deadline_of(_value(head, _DEADLINE)).at)
        return None
    except (ApiError, NotReadyError):
        return None
    except OverloadError as error:
        message = str(error)
    raw_path = head.target.partition(b"?")[0]
    path = raw_path.decode("ascii", "replace")
    found = app.endpoints.find(path)
    if found is None or not service.is_ready or any(name in _LEFT_TO_THE_APP for name, _ in head.headers):
        return None
    before, behind = _lines(path, message)
    ids = request_ids(head.headers)
    scope: dict[str, Any] = {
        "method": "POST",
        "raw_path": raw_path,
        "client": head.client,
        "route": found.endpoint.route,
    }
    token = CURRENT.set(ids)
    report(app.metrics, scope, 503, time.perf_counter() - begun, ids)
    CURRENT.reset(token)
    return b"".join((before, ids.request_id.encode(), behind))


def _value(head: RequestHead, wanted: bytes) -> str | None:
    return next((value.decode("latin-1") for name, value in head.headers if name == wanted), None)


@functools.lru_cache(256)
def _lines(path: str, message: str) -> tuple[bytes, bytes]:
    """What an answer is made of, before and behind the request's id."""
    response = overloaded(path, message)
    headers = [*response.raw_headers, *security_headers(path), (HEADER, b"")]
    lines = b"\r\n".join(b": ".join(header) for header in headers)
    return lines, b"\r\n\r\n" + bytes(response.body)
