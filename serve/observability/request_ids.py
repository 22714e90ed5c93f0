"""By what a request is known in logs and answers."""

import re
import uuid
from collections.abc import Iterable
from contextvars import ContextVar
from typing import NamedTuple

HEADER = b"x-request-id"

# Nothing that could break a line of a log, a header or a query of a log's database.
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._~:/+=@-]{1,128}")
# Version, trace id, id of the caller's span, flags. Later versions may have more fields.
_TRACEPARENT = re.compile(
    rb"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?"
)


class RequestIds(NamedTuple):
    """request_id: the client's X-Request-ID, or one made here; trace_id: that of `traceparent`, if any; key:
    the name of the key that it came with, once that is known."""

    request_id: str
    trace_id: str | None
    key: str | None = None


CURRENT: ContextVar[RequestIds | None] = ContextVar("lensbox_request_ids", default=None)
"""Those of the request that is being answered here; None outside of one."""


def request_ids(headers: Iterable[tuple[bytes, bytes]]) -> RequestIds:
    """Those of a request. What a client sent in another form than the standard's is as good as not sent."""
    ids = [value for name, value in headers if name == HEADER]
    parents = [value for name, value in headers if name == b"traceparent"]
    request_id = ids[0].decode() if len(ids) == 1 and _REQUEST_ID.fullmatch(ids[0]) else uuid.uuid4().hex
    return RequestIds(request_id, _trace_id(parents[0]) if len(parents) == 1 else None)


def _trace_id(traceparent: bytes) -> str | None:
    found = _TRACEPARENT.fullmatch(traceparent.strip())
    if found is None or (found[1] == b"00" and found[3]):  # version 00 has four fields
        return None
    return found[2].decode()
