"""Whether requests are traced. Imports OpenTelemetry only where somebody wants that."""

import importlib.util
import logging
import os
from typing import TYPE_CHECKING

from lensbox.common.errors import ExitCode, LensboxError
from lensbox.serve.settings import Settings

if TYPE_CHECKING:
    from lensbox.serve.observability.spans import Tracing

_log = logging.getLogger(__name__)

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_INSTALL = "traces need OpenTelemetry: pip install 'lensbox[otel]'"


class TracingError(LensboxError):
    """Traces are asked for and cannot be made."""

    exit_code = ExitCode.UNUSABLE


def check_tracing(settings: Settings) -> None:
    """Raises TracingError where the settings ask for traces, and OpenTelemetry is not installed."""
    if settings.otel_endpoint and not _is_installed():
        raise TracingError(_INSTALL)


def start_tracing(settings: Settings) -> "Tracing | None":
    """Sends spans to the collector of the settings or of the environment; None where there is none.

    The environment is that of all programs of a machine: where OpenTelemetry is missing, a warning is enough.
    """
    by_environment = any(os.environ.get(name) for name in _ENDPOINTS)
    if not settings.otel_endpoint and not by_environment:
        return None
    check_tracing(settings)
    if not _is_installed():
        _log.warning("%s is set, but %s", " or ".join(_ENDPOINTS), _INSTALL)
        return None
    from lensbox.serve.observability.spans import to_collector

    return to_collector(settings.otel_endpoint)


def _is_installed() -> bool:
    try:
        return importlib.util.find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False
