"""`lensbox serve`."""

import errno
import os
import re
import socket
import ssl
from collections.abc import Callable
from dataclasses import Field, fields, replace
from pathlib import Path
from typing import Any, cast

import click

from lensbox.cli.command import FILE, OPS, Command
from lensbox.common.errors import DeviceError, ExitCode, LensboxError
from lensbox.serve.http.api_keys import ApiKeyError, read_keys
from lensbox.serve.http.listener import listen
from lensbox.serve.models.catalogue import Catalogue
from lensbox.serve.observability.logs import FORMATS, LogStyle
from lensbox.serve.settings import DEVICES, MEBIBYTE, Settings
from lensbox.serve.shutdown import Shutdown, end_process

DEFAULT_ARTIFACT = Path("artifacts/detector.pt")
LOG_LEVELS = ("critical", "error", "warning", "info", "debug")


# The options of `lensbox serve --help`, by heading. Each setting belongs to one group.
GROUPS = {
    "Models": "artifact models default_model watch swap device devices threads ops public_key",
    "Network and access": "host port tls_certificate tls_key api_keys_file admin_key_file "
    "cors_origins no_page",
    "Requests": "max_body_bytes max_json_bytes max_pixels max_boxes decode decode_threads",
    "Load": "max_requests max_connections max_batch max_delay queue_size queue_bytes frontends busy_poll",
    "Timeouts": "body_timeout answer_timeout engine_timeout keep_alive_timeout shutdown_delay "
    "shutdown_timeout",
    "Logs and traces": "log_level log_format otel_endpoint",
}


_OPTIONS = {
    setting.name: "--" + setting.name.replace("_", "-").replace("-bytes", "-mb")
    for setting in fields(Settings)
}


class GroupedCommand(Command):
    """A command whose help shows its options in `GROUPS`."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, each group under its heading."""
        records = {parameter.name: parameter.get_help_record(ctx) for parameter in self.get_params(ctx)}
        groups = {heading: [records.pop(name) for name in names.split()] for heading, names in GROUPS.items()}
        for heading, rows in {**groups, "Help": list(records.values())}.items():
            with formatter.section(heading):
                formatter.write_dl([row for row in rows if row is not None])


class CannotStartError(LensboxError):
    """The service cannot start; the message says why."""

    exit_code = ExitCode.UNUSABLE


def _with_settings(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for each setting, in the order of the settings."""
    for setting in reversed(fields(Settings)):
        function = _setting_option(setting)(function)
    return function


def _setting_option(setting: "Field[Any]") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a setting's option, such as --queue-size for `queue_size`; sizes in bytes are given in MiB."""
    if setting.name == "ops":
        return OPS
    name, default = setting.name, cast(Any, setting.default)
    how: dict[str, Any] = {"default": default, "help": setting.metadata["summary"]}
    if name == "artifact":
        how |= {"type": FILE, "multiple": True}
    elif setting.metadata.get("is_file"):
        how["type"] = FILE
    elif name == "device":
        how |= {"type": _device, "metavar": "[auto|cpu|cuda|cuda:N]"}
    elif isinstance(default, str):
        how["metavar"] = setting.metadata["metavar"]
    elif isinstance(default, bool):
        how["is_flag"] = True
    elif name.endswith("_bytes"):
        # A default as text passes through `_mebibytes`, as a given value does.
        how |= {"type": _mebibytes, "default": f"{default // MEBIBYTE}", "metavar": "MIB"}
    else:
        how["type"] = float if isinstance(default, float) else int
    return click.option(_OPTIONS[name], name, **how)


def as_typed(message: str) -> str:
    """Return a message with the options of settings in place of their names."""
    return re.sub(r"(?<![\w/.-])[a-z]+(_[a-z]+)+(?![\w/.-])|^[a-z]+", _option_of, message)


def _option_of(name: "re.Match[str]") -> str:
    return _OPTIONS.get(name[0], name[0])


def _device(text: str) -> str:
    """Return a device: one of DEVICES, or cuda:N. Raise BadParameter for any other text."""
    if re.fullmatch(r"cuda:\d{1,3}", text):
        return text
    return str(click.Choice(DEVICES).convert(text, None, None))


def _mebibytes(text: str) -> int:
    """Return the number of bytes of a number of MiB. Raise BadParameter."""
    try:
        size = float(text)
    except ValueError:
        raise click.BadParameter(f"must be a number of MiB, got {text}") from None
    if not 0 < size <= MEBIBYTE:  # a tebibyte; NaN fails
        raise click.BadParameter(f"must be above 0 and at most {MEBIBYTE} MiB, got {text}")
    return int(size * MEBIBYTE)


def _run(settings: Settings, listener: socket.socket, log: LogStyle, shutdown: Shutdown) -> Exception | None:
    """Serve until shutdown. Return the error if the service could not start, else None."""
    # OpenMP reads this when torch is imported. By default its waiting threads spin: beside busy programs, one
    # inference then takes seconds.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # Imported here because this imports torch, which takes seconds.
    from lensbox.serve.engine.devices import busy_poll, device_names, frontend_count, places

    try:
        _check_certificate(settings)
        keys = read_keys(settings)
        devices = device_names(settings)
        count = frontend_count(settings, devices)
    except (ApiKeyError, CannotStartError, DeviceError) as error:
        return error
    settings = replace(settings, queue_size=places(settings, devices))
    if count:
        from lensbox.serve.processes import supervisor

        settings = replace(settings, frontends=count)
        settings = replace(settings, busy_poll=busy_poll(settings, devices))
        return supervisor.run(settings, devices, listener, log, shutdown, keys)
    from lensbox.serve.http import server

    return server.run(settings, listener, log, shutdown, keys)


def _check_certificate(settings: Settings) -> None:
    """Raise CannotStartError if TLS cannot start, because each front end would end and be restarted."""
    if settings.tls_certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(settings.tls_certificate, settings.tls_key)
        except OSError as error:  # also ssl.SSLError
            raise CannotStartError(f"tls_certificate and tls_key cannot be used: {error}") from error


@click.command(cls=GroupedCommand)
@click.option("--host", default="127.0.0.1", help="Address to listen on; 0.0.0.0 or :: for all networks.")
@click.option("--port", type=click.IntRange(0, 65_535), default=8000, help="0 takes a free port and logs it.")
@_with_settings
@click.option("--log-level", type=click.Choice(LOG_LEVELS), default="info", help="info logs every request.")
@click.option("--log-format", type=click.Choice(FORMATS), default="text", help="json: one object per line.")
def serve(host: str, port: int, log_level: str, log_format: str, **values: Any) -> ExitCode:
    """Answer detection requests over HTTP. docs/service.md gives the reason for each limit."""
    files = values.pop("artifact")
    if len(files) > 1:
        raise click.UsageError(
            f"--artifact must be given once, got {len(files)} files; --models DIR serves several models"
        )
    if not files and values["models"] is None:
        files = (DEFAULT_ARTIFACT,)
    try:
        settings = Settings(files[0] if files else None, **values)
    except ValueError as error:
        raise click.UsageError(as_typed(str(error))) from error
    log = LogStyle(log_level, log_format)
    log.start()
    log.flush()
    try:
        Catalogue(settings.artifact, settings.models).check()
    except LensboxError as error:
        raise CannotStartError(f"cannot start: {error}") from error
    try:
        listener = listen(host, port)
    except OSError as error:
        hint = (
            "; choose another port with --port, or a free one with --port 0"
            if error.errno == errno.EADDRINUSE
            else ""
        )
        raise CannotStartError(f"cannot start: cannot listen on {host} port {port}: {error}{hint}") from error
    shutdown = Shutdown(settings.shutdown_timeout)
    with listener:
        failure = _run(settings, listener, log, shutdown)
    code = ExitCode.GOOD
    if failure is not None:
        log.flush()
        code = CannotStartError.exit_code
        click.echo(
            f"lensbox serve: cannot start: {as_typed(str(failure)) or type(failure).__name__}", err=True
        )
    # A regular exit would wait for threads that are stuck in a decoder or in the model.
    return end_process(code)
