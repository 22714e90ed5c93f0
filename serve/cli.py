"""`lensbox serve`."""

import difflib
import errno
import gc
import logging
import os
import re
import socket
import sys
from pathlib import Path
from typing import Any

import click

from lensbox.cli.command import Command, as_typed, options_of, read_options
from lensbox.common.errors import ExitCode, LensboxError
from lensbox.serve.errors import StartupError
from lensbox.serve.http.api_keys import forget_variables, read_keys
from lensbox.serve.models.files import Catalogue
from lensbox.serve.observability.logs import start_log
from lensbox.serve.settings import Settings, options
from lensbox.serve.shutdown import Shutdown, end_process

_log = logging.getLogger(__name__)

DEFAULT_ARTIFACT = Path("artifacts/detector.pt")
# Kubernetes sets these for a Service named lensbox, or lensbox-..., in the same namespace.
_LINKS = re.compile(r"LENSBOX_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP)(_\w+)?|\w+_PORT)")
_FURTHER = ("LENSBOX_API_KEYS", "LENSBOX_ADMIN_KEY", "LENSBOX_API_KEY", "LENSBOX_OPS_LIBRARY")
_WARNINGS = "lensbox.warnings"  # key of click's context


class ServeCommand(Command):
    """The command, which looks at the variables before it reads them."""

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **more: Any) -> click.Context:
        """Return the context, without the variables of a Service of Kubernetes."""
        warnings = []
        if (link := os.environ.get("LENSBOX_PORT", "")).startswith(("tcp://", "udp://")):
            del os.environ["LENSBOX_PORT"]
            how = "enableServiceLinks: false, or another name of the Service, avoids it"
            warnings.append(f"LENSBOX_PORT={link} is a service link of Kubernetes and is ignored; {how}")
        context = super().make_context(info_name, args, *rest, **more)
        known = [f"LENSBOX_{name.upper()}" for name in options()] + [*_FURTHER]
        for name in sorted(os.environ):
            if name.startswith("LENSBOX_") and name not in known and not _LINKS.fullmatch(name):
                close = difflib.get_close_matches(name, known, 1)
                hint = f"; did you mean {close[0]}?" if close else ""
                warnings.append(f"the variable {name} stands for no option and is ignored{hint}")
        context.meta[_WARNINGS] = warnings
        return context


def _run(settings: Settings) -> None:
    """Serve until shutdown. Raise LensboxError if the service cannot start."""
    if not sys.platform.startswith("linux"):
        raise StartupError(f"the service needs Linux, got {sys.platform}")
    Catalogue(settings.artifact, settings.models).check()
    try:
        settings.tls_context()  # each front end would end and be restarted
    except OSError as error:  # also ssl.SSLError
        raise StartupError(f"tls_certificate and tls_key cannot be used: {error}") from error
    keys = read_keys(settings)
    forget_variables()
    try:
        listener = listen(settings.host, settings.port)
    except OSError as error:
        in_use = error.errno == errno.EADDRINUSE
        hint = "; choose another port with --port, or a free one with --port 0" if in_use else ""
        place = f"{settings.host} port {settings.port}"
        raise StartupError(f"cannot listen on {place}: {error}{hint}") from error
    with listener:
        shutdown = Shutdown(settings.shutdown_timeout)
        # OpenMP reads this when torch is imported. By default its waiting threads spin: beside busy programs,
        # one inference then takes seconds.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        gc.disable()  # runs during the imports find nothing; later ones would copy what processes share
        # Imported here: `--help` has no use for it, and signals are handled meanwhile.
        try:
            from lensbox.serve.engine.devices import for_this_machine
            from lensbox.serve.processes import supervisor
        except ModuleNotFoundError:  # `main` says how to install it
            raise
        except (ImportError, OSError) as error:  # a shared library is missing, or does not fit
            raise StartupError(f"cannot import what the service needs: {error}") from error

        gc.freeze()
        gc.enable()
        settings, devices = for_this_machine(settings)
        supervisor.run(settings, devices, listener, shutdown, keys)


def read_settings(values: dict[str, Any]) -> Settings:
    """Return the settings of the command's options. Raise click.UsageError."""
    files = values["artifact"]
    if len(files) > 1:
        rule = f"--artifact must be given once, got {len(files)} files"
        raise click.UsageError(f"{rule}; --models DIR serves several models")
    if not files and values["models"] is None:
        files = (DEFAULT_ARTIFACT,)
    return read_options(Settings, {**values, "artifact": files[0] if files else None})


def listen(host: str, port: int) -> socket.socket:
    """Return a bound socket. "::" takes IPv4, too. Raise OSError, for example for a port in use."""
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    dual = family == socket.AF_INET6 and host in ("::", "") and socket.has_dualstack_ipv6()
    return socket.create_server((host, port), family=family, dualstack_ipv6=dual)


@click.command(cls=ServeCommand, context_settings={"auto_envvar_prefix": "LENSBOX"})
@options_of(Settings, repeatable=("artifact",))
def serve(**values: Any) -> ExitCode:
    """Answer detection requests over HTTP. docs/service.md gives the reason for each limit.

    The variable LENSBOX_MAX_BATCH stands for --max-batch, and so on. An option counts more.
    """
    settings = read_settings(values)
    start_log(settings.log_level, settings.log_format)
    for warning in click.get_current_context().meta.get(_WARNINGS, ()):
        _log.warning(warning)
    code = ExitCode.GOOD
    try:
        _run(settings)
    except LensboxError as failure:
        for handler in logging.getLogger().handlers:
            handler.flush()  # the lines so far come first
        code = StartupError.exit_code
        message = as_typed(str(failure), options()) or type(failure).__name__
        click.echo(f"lensbox serve: cannot start: {message}", err=True)
    # A regular exit would wait for threads that are stuck in a decoder or in the model.
    return end_process(code)
