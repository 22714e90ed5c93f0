"""Request IDs, and log records as text or JSON lines, which never wait for a reader of stderr."""

import contextlib
import json
import logging
import os
import re
import secrets
import sys
import threading
import time
from collections.abc import Iterable
from contextvars import ContextVar
from datetime import datetime, timezone
from typing import Any

from lensbox.cli.command import start_reporting

_log = logging.getLogger(__name__)

HEADER = b"x-request-id"

_MOST_LINES = 1000  # that wait for a reader
_FLUSH_TIMEOUT = 1.0  # seconds

# Only characters that cannot break a log line, a header or a query of a log database.
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._~:/+=@-]{1,128}")


CURRENT: ContextVar[dict[str, str]] = ContextVar("lensbox_request_ids")
"""The IDs of the current request, request_id and, with traces, trace_id. Not set outside of a request."""


def request_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the ID in a request's X-Request-ID, or a random one. Ignore malformed and repeated IDs."""
    ids = [value for name, value in headers if name == HEADER]
    is_valid = len(ids) == 1 and _REQUEST_ID.fullmatch(ids[0])
    return ids[0].decode() if is_valid else secrets.token_hex(16)


class JsonFormatter(logging.Formatter):
    """Format a record as one line of JSON: UTC time, level, logger, message, request IDs, and `fields`.

    fields: key-value pairs in the record's `extra`.
    """

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry |= CURRENT.get({}) | getattr(record, "fields", {})
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def start_log(level: str, style: str) -> None:
    """Write the log records of this process to stderr, from `level` on. style: text or json."""
    start_reporting(level.upper(), as_log=True)
    handlers = logging.getLogger().handlers
    handler = PatientHandler(sys.stderr.fileno())
    handler.setFormatter(JsonFormatter() if style == "json" else handlers[0].formatter)
    handlers[:] = [handler]


class PatientHandler(logging.Handler):
    """Write lines to a file in a thread of its own. While nobody reads the file, drop and count new lines.

    A pipe without a reader fills up after 64 KiB; writing would then block the event loop.
    """

    def __init__(self, file: int) -> None:
        super().__init__()
        self._file = file
        self._lines: list[str] = []
        self._dropped = 0
        self._is_writing = False
        self._changed = threading.Condition()
        threading.Thread(target=self._write_lines, name="lensbox-log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record)  # here, because request IDs belong to the caller's context
        with self._changed:
            if len(self._lines) < _MOST_LINES:
                self._lines.append(line)
                self._changed.notify_all()
            else:
                self._dropped += 1

    def flush(self) -> None:
        """Wait until all lines are written, a second at most."""
        with self._changed:
            self._changed.wait_for(lambda: not self._lines and not self._is_writing, _FLUSH_TIMEOUT)

    def _write_lines(self) -> None:
        while True:
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._lines)
                self._is_writing = True
                lines, self._lines = self._lines, []
                dropped, self._dropped = self._dropped, 0
            if dropped:
                text = f"{dropped} log lines were dropped, because nobody read them"
                record = _log.makeRecord(_log.name, logging.WARNING, "", 0, text, (), None)
                lines.append(self.format(record))
            rest = memoryview("".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace"))
            with contextlib.suppress(OSError):  # the reader is gone
                while rest:
                    try:
                        rest = rest[os.write(self._file, rest) :]
                    except BlockingIOError:  # another program has made the file non-blocking
                        time.sleep(0.05)
