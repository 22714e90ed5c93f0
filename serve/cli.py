"""`lensbox serve`."""

import argparse
import logging
import sys
from dataclasses import fields
from pathlib import Path

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
        settings = _settings(options)
    except ValueError as error:
        parser.error(str(error))
    logging.basicConfig(
        level=options.log_level.upper(), format="%(levelname)s: %(message)s", stream=sys.stderr, force=True
    )
    try:
        listener = listen(options.host, options.port)
    except (OSError, OverflowError) as error:
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


def _settings(options: argparse.Namespace) -> Settings:
    return Settings(**{field.name: getattr(options, field.name) for field in fields(Settings)})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lensbox serve",
        description="Answers detection requests over HTTP. docs/service.md gives the reason for each limit.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    default = Settings(artifact=Path("artifacts/detector.pt"))
    add = parser.add_argument
    add("--artifact", type=Path, default=default.artifact, help="the file that `lensbox export` wrote")
    add("--host", default="127.0.0.1", help="address to listen on; 0.0.0.0 for all networks")
    add("--port", type=int, default=8000, help="0 takes a free one and logs it")
    add("--device", choices=DEVICES, default=default.device, help="auto: cuda where torch sees a GPU")
    add("--threads", type=int, help="CPU threads of one inference; None leaves the choice to torch")
    add("--decode-threads", type=int, default=default.decode_threads, help="images decoded at a time")
    for option, setting, what in (
        ("--max-body-mb", "max_body_bytes", "image request"),
        ("--max-json-mb", "max_json_bytes", "JSON request"),
    ):
        size = f"{getattr(default, setting) // MEBIBYTE}"
        add(option, dest=setting, type=_mebibytes, default=size, metavar="MIB", help=f"largest {what}")
    add("--max-pixels", type=int, default=default.max_pixels, help="most pixels of an image")
    add("--max-boxes", type=int, default=default.max_boxes, help="most boxes in predictions, and in targets")
    add("--max-requests", type=int, default=default.max_requests, help="requests in progress at a time")
    add("--queue-size", type=int, default=default.queue_size, help="images that may wait for the model")
    add("--body-timeout", type=float, default=default.body_timeout, help="seconds for receiving a body")
    answer_help = "seconds for decoding, and again for waiting and inference"
    add("--answer-timeout", type=float, default=default.answer_timeout, help=answer_help)
    shutdown_help = "seconds that requests in progress get after SIGTERM"
    add("--shutdown-timeout", type=int, default=default.shutdown_timeout, help=shutdown_help)
    idle_help = "seconds that an idle connection stays open"
    add("--keep-alive-timeout", type=int, default=default.keep_alive_timeout, help=idle_help)
    add("--log-level", choices=LOG_LEVELS, default="info", help="info logs every request")
    return parser


def _mebibytes(text: str) -> int:
    """Bytes from a number of MiB, for argparse."""
    size = float(text)
    if not 0 < size <= MEBIBYTE:  # a tebibyte; NaN fails
        raise argparse.ArgumentTypeError(f"must be above 0 and at most {MEBIBYTE} MiB, got {text}")
    return int(size * MEBIBYTE)
