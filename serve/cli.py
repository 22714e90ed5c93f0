"""`lensbox serve`."""

import argparse
import logging
import sys
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, cast

from lensbox.errors import ExitCode
from lensbox.serve.ending import Ending, end_process
from lensbox.serve.listener import listen
from lensbox.serve.settings import DEVICES, MEBIBYTE, Settings

LOG_LEVELS = ("critical", "error", "warning", "info", "debug")


def main(arguments: list[str]) -> int:
    """Serves until SIGINT or SIGTERM, then ends the process with 0; with 3 if the service cannot start.

    Returns, with 3 and one message, only if it cannot even listen.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        settings = Settings(**{field.name: getattr(options, field.name) for field in fields(Settings)})
    except ValueError as error:
        parser.error(str(error))
    logging.basicConfig(
        level=options.log_level.upper(), format="%(levelname)s: %(message)s", stream=sys.stderr, force=True
    )
    try:
        listener = listen(options.host, options.port)
    except OSError as error:
        return _cannot_start(f"{options.host} port {options.port} cannot be listened on: {error}")
    ending = Ending(settings.shutdown_timeout)

    # Imported after the arguments are known to be good, and signals are answered: this imports torch.
    from lensbox.serve.server import serve

    with listener:
        failure = serve(settings, listener, options.log_level, ending)
    code = ExitCode.GOOD if failure is None else _cannot_start(str(failure) or type(failure).__name__)
    # The interpreter would wait for threads that are left behind in a decoder or in the model.
    return end_process(code)


def _cannot_start(message: str) -> ExitCode:
    print(f"lensbox serve: cannot start: {message}", file=sys.stderr)
    return ExitCode.UNUSABLE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lensbox serve",
        description="Answers detection requests over HTTP. docs/service.md gives the reason for each limit.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on; 0.0.0.0 for all networks")
    add("--port", type=_port, default=8000, help="0 takes a free one and logs it")
    for setting in fields(Settings):
        _add_setting(parser, setting)
    add("--log-level", choices=LOG_LEVELS, default="info", help="info logs every request")
    return parser


def _add_setting(parser: argparse.ArgumentParser, setting: "Field[Any]") -> None:
    """Adds a setting's option: --queue-size for `queue_size`, and MiB for bytes: --max-body-mb."""
    name, default = setting.name, cast(Any, setting.default)
    option = f"--{name.replace('_', '-')}"
    how: dict[str, Any] = {"default": default, "help": setting.metadata["summary"]}
    if name == "artifact":
        how |= {"type": Path, "default": Path("artifacts/detector.pt")}
    elif name == "device":
        how["choices"] = DEVICES
    elif isinstance(default, bool):
        how["action"] = "store_true"
    elif name.endswith("_bytes"):
        option = option.replace("-bytes", "-mb")
        # As text, so that argparse converts it as what a user gives.
        how |= {"dest": name, "type": _mebibytes, "default": f"{default // MEBIBYTE}", "metavar": "MIB"}
    else:
        how["type"] = float if isinstance(default, float) else int
    parser.add_argument(option, **how)


def _mebibytes(text: str) -> int:
    """Bytes from a number of MiB, for argparse."""
    size = float(text)
    if not 0 < size <= MEBIBYTE:  # a tebibyte; NaN fails
        raise argparse.ArgumentTypeError(f"must be above 0 and at most {MEBIBYTE} MiB, got {text}")
    return int(size * MEBIBYTE)


def _port(text: str) -> int:
    """A TCP port, for argparse."""
    port = int(text)
    if not 0 <= port <= 65_535:
        raise argparse.ArgumentTypeError(f"must be between 0 and 65535, got {port}")
    return port
