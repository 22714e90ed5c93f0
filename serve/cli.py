"""`lensbox serve`."""

import errno
import re
import socket
from collections.abc import Callable
from dataclasses import Field, fields, replace
from pathlib import Path
from typing import Any, cast

import click

from lensbox.common.command import FILE, Command
from lensbox.common.errors import DeviceError, ExitCode, LensboxError
from lensbox.common.reporting import warn_of_unknown_variables
from lensbox.serve.ending import Ending, end_process
from lensbox.serve.listener import listen
from lensbox.serve.observability.logs import FORMATS, LogStyle
from lensbox.serve.observability.tracing import TracingError, check_tracing
from lensbox.serve.security.access import Access
from lensbox.serve.security.api_keys import KeyFileError
from lensbox.serve.security.tls import CertificateError, check_certificate
from lensbox.serve.settings import DEVICES, MEBIBYTE, Settings

LOG_LEVELS = ("critical", "error", "warning", "info", "debug")


class CannotStartError(LensboxError):
    """The service cannot start; the message says why."""

    exit_code = ExitCode.UNUSABLE


def _with_settings(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds an option for each setting, in their order."""
    for setting in reversed(fields(Settings)):
        function = _setting_option(setting)(function)
    return function


def _setting_option(setting: "Field[Any]") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A setting's option: --queue-size for `queue_size`, and MiB for bytes: --max-body-mb."""
    name, default = setting.name, cast(Any, setting.default)
    option = f"--{name.replace('_', '-')}"
    how: dict[str, Any] = {"default": default, "help": setting.metadata["summary"]}
    if name == "artifact":
        how |= {"type": FILE, "default": Path("artifacts/detector.pt")}
    elif setting.metadata.get("is_file"):
        how["type"] = FILE
    elif name == "device":
        how |= {"type": _device, "metavar": "[auto|cpu|cuda|cuda:N]"}
    elif isinstance(default, str):
        how["metavar"] = setting.metadata.get("metavar", "NAMES")
    elif isinstance(default, bool):
        how["is_flag"] = True
    elif name.endswith("_bytes"):
        option = option.replace("-bytes", "-mb")
        # As text, so that click converts it as what a user gives.
        how |= {"type": _mebibytes, "default": f"{default // MEBIBYTE}", "metavar": "MIB"}
    else:
        how["type"] = float if isinstance(default, float) else int
    return click.option(option, name, **how)


def _device(text: str) -> str:
    """One of DEVICES or a GPU by its number, for an option's `type`."""
    if re.fullmatch(r"cuda:\d{1,3}", text):
        return text
    return str(click.Choice(DEVICES).convert(text, None, None))


def _mebibytes(text: str) -> int:
    """Bytes from a number of MiB, for an option's `type`."""
    size = float(text)
    if not 0 < size <= MEBIBYTE:  # a tebibyte; NaN fails
        raise click.BadParameter(f"must be above 0 and at most {MEBIBYTE} MiB, got {text}")
    return int(size * MEBIBYTE)


def _run(settings: Settings, listener: socket.socket, log: LogStyle, ending: Ending) -> Exception | None:
    """Serves until the end. Returns why it could not start, or None."""
    # Imported after the arguments are known to be good, and signals are answered: this imports torch.
    from lensbox.serve.engine.devices import busy_poll, device_names, frontend_count

    try:
        check_certificate(settings)
        check_tracing(settings)
        access = Access.of(settings)
        devices = device_names(settings)
    except (CertificateError, DeviceError, KeyFileError, TracingError) as error:
        return error
    if count := frontend_count(settings, devices):
        from lensbox.serve.processes import supervisor

        settings = replace(settings, frontends=count)
        settings = replace(settings, busy_poll=busy_poll(settings, devices))
        return supervisor.run(settings, devices, listener, log, ending, access)
    from lensbox.serve import server

    return server.run(settings, listener, log, ending, access)


@click.command(cls=Command)
@click.option("--host", default="127.0.0.1", help="Address to listen on; 0.0.0.0 for all networks.")
@click.option("--port", type=click.IntRange(0, 65_535), default=8000, help="0 takes a free one and logs it.")
@_with_settings
@click.option("--log-level", type=click.Choice(LOG_LEVELS), default="info", help="info logs every request.")
@click.option("--log-format", type=click.Choice(FORMATS), default="text", help="json: a line is an object.")
def serve(host: str, port: int, log_level: str, log_format: str, **values: Any) -> ExitCode:
    """Answers detection requests over HTTP. docs/service.md gives the reason for each limit."""
    # Serves until SIGINT or SIGTERM, then ends the process. Returns only if it cannot even listen.
    try:
        settings = Settings(**values)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    log = LogStyle(log_level, log_format)
    log.start()
    warn_of_unknown_variables()
    try:
        listener = listen(host, port)
    except OSError as error:
        hint = "; --port chooses another, 0 a free one" if error.errno == errno.EADDRINUSE else ""
        raise CannotStartError(
            f"cannot start: {host} port {port} cannot be listened on: {error}{hint}"
        ) from error
    ending = Ending(settings.shutdown_timeout)

    with listener:
        failure = _run(settings, listener, log, ending)
    code = ExitCode.GOOD
    if failure is not None:
        code = CannotStartError.exit_code
        click.echo(f"lensbox serve: cannot start: {str(failure) or type(failure).__name__}", err=True)
    # The interpreter would wait for threads that are left behind in a decoder or in the model.
    return end_process(code)
