"""What the service logs, for people or as JSON lines."""

import json
import logging
from datetime import datetime, timezone
from typing import Any, NamedTuple

from lensbox.common.reporting import start_reporting
from lensbox.serve.observability.request_ids import CURRENT

FORMATS = ("text", "json")


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON: time in UTC, level, logger, message, the request's ids, and its `fields`.

    fields: what a record brings for programs, in `extra`.
    """

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        ids = CURRENT.get()
        if ids is not None:
            entry |= {name: value for name, value in ids._asdict().items() if value is not None}
        entry |= getattr(record, "fields", {})
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry)


class LogStyle(NamedTuple):
    """level: the least important records that are written; format: one of FORMATS."""

    level: str
    format: str

    def start(self) -> None:
        """Writes records to stderr like this from now on, in this process."""
        start_reporting(self.level.upper(), as_log=True)
        if self.format == "json":
            for handler in logging.getLogger().handlers:
                handler.setFormatter(JsonFormatter())
