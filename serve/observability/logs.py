"""Log records as text or JSON lines, which never wait for a reader of stderr."""

import contextlib
import json
import logging
import os
import sys
import threading
import time
from contextvars import ContextVar
from datetime import datetime, timezone
from logging.handlers import QueueHandler
from queue import Full, Queue
from typing import Any

from lensbox.cli.command import start_reporting

_log = logging.getLogger(__name__)

_MOST_LINES = 1000  # that wait for a reader
_FLUSH_TIMEOUT, _POLL = 1.0, 0.005  # seconds

CURRENT: ContextVar[dict[str, str]] = ContextVar("lensbox_request_ids")
"""The IDs of the current request, request_id and, with traces, trace_id. Not set outside of a request."""


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
    formatter = JsonFormatter() if style == "json" else handlers[0].formatter
    handlers[:] = [QueuedLog(sys.stderr.fileno(), formatter)]


class QueuedLog(QueueHandler):
    """Format records, and write the lines in a thread. While nobody reads the file, drop and count lines.

    A pipe without a reader fills up after 64 KiB; writing would then block the event loop.
    """

    def __init__(self, file: int, formatter: logging.Formatter | None) -> None:
        self._file, self._dropped = file, 0
        self._start()
        super().__init__(self._lines)
        self.setFormatter(formatter)
        os.register_at_fork(after_in_child=self._start)  # a forked process has no thread, and its own lines

    def prepare(self, record: logging.LogRecord) -> str:
        """Format a record, here, because request IDs belong to the caller's context."""
        return self.format(record)

    def enqueue(self, line: Any) -> None:
        """Put a line into the queue, unless it is full."""
        try:
            if self._dropped:
                text = f"{self._dropped} log lines were dropped, because nobody read them"
                told = _log.makeRecord(_log.name, logging.WARNING, "", 0, text, (), None)
                self._lines.put_nowait(self.prepare(told))
                self._dropped = 0
            self._lines.put_nowait(line)
        except Full:
            self._dropped += 1

    def flush(self) -> None:
        """Wait until all lines are written, a second at most."""
        until = time.monotonic() + _FLUSH_TIMEOUT
        while self._lines.qsize() and time.monotonic() < until:
            time.sleep(_POLL)
        time.sleep(_POLL)  # for the line that is being written

    def _start(self) -> None:
        self.queue = self._lines = Queue[str](_MOST_LINES)
        threading.Thread(target=self._write, name="lensbox-log", daemon=True).start()

    def _write(self) -> None:
        """Write lines without a lock or a buffer: at a fork, the new process would get them as they are."""
        while True:
            line = f"{self._lines.get()}\n".encode(errors="backslashreplace")
            with contextlib.suppress(OSError):  # nobody can read any more
                while line:
                    line = line[os.write(self._file, line) :]
