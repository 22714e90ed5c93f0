"""`lensbox export`, `info` and `sign`: write, describe and sign artifacts, `--help` without torch."""

import contextlib
import logging
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import click

from lensbox.cli.command import FILE, OPS, Command, batch_sizes, options_of, read_options, start_reporting
from lensbox.common.files import atomic_write, require_writable_file
from lensbox.export.options import FORMATS, ExportOptions, default_format, output_paths

_logger = logging.getLogger(__name__)


def _file(text: str) -> Path:
    path = Path(text)
    if path.name in ("", ".."):
        raise click.BadParameter(f"must name a file, got {text!r}")
    return path


def _formats(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the requested formats without repetition, in the order of `FORMATS`."""
    names = {name for text in texts or (default_format(),) for name in text.split(",")}
    if unknown := sorted(names - FORMATS.keys()):
        raise click.BadParameter(f"must be of {', '.join(FORMATS)}, got {', '.join(map(repr, unknown))}")
    return tuple(name for name in FORMATS if name in names)


@click.command(cls=Command)
@click.option(
    "--model",
    metavar="PACKAGE.MODULE:FUNCTION",
    help="Function that returns the detector (docs/your_detector.md). Default: Lensbox's face detector.",
)
@click.option(
    "--size",
    type=click.Choice(["base", "large"]),
    help="Shipped weights of the face detector. large finds more faces, for GPUs. Default: base.",
)
@click.option(
    "--weights",
    type=FILE,
    help="Weights of the model; for the face detector a file of save_detector. Default: the shipped weights.",
)
@click.option(
    "--weights-key",
    metavar="PLACE",
    help="Place of the weights in a file that holds several, such as ema.module. An error lists the places.",
)
@click.option(
    "--option",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Argument of the model's function: a JSON value or text. May be repeated.",
)
@click.option(
    "--format",
    "formats",
    multiple=True,
    callback=_formats,
    metavar="NAME",
    show_default="torchscript; program on Python 3.14",
    help="torchscript: all methods, for every runtime of Lensbox. program: detect and the loss as "
    "graphs, for any device. aoti: only detect, compiled for this machine and --device. onnx: only detect, "
    "in standard operators. Separate several formats with commas, or repeat the option (docs/formats.md).",
)
@click.option(
    "--batch",
    "batches",
    type=batch_sizes(256),
    default="",
    show_default=False,
    metavar="SIZES",
    help="Fixed batch size of the network; for torchscript one or several, such as 1,8. Runtimes cut and "
    "fill batches to fit. Default: any size.",
)
@click.option(
    "--output",
    type=_file,
    metavar="FILE",
    help="File to write. With several formats, each gets its suffix: .pt, .pt2, .onnx. Default: "
    "artifacts/detector with the suffix.",
)
@options_of(ExportOptions)
@OPS
@click.option(
    "--runner",
    type=FILE,
    metavar="FILE",
    envvar="LENSBOX_RUNNER",
    help="Program lensbox_runner, to compare the files in C++ too. Default: environment variable "
    "LENSBOX_RUNNER.",
)
@click.option("--verbose", is_flag=True, help="Print each comparison of the files with the detector.")
def export(
    model: str | None,
    size: str | None,
    weights: Path | None,
    weights_key: str | None,
    settings: tuple[str, ...],
    output: Path | None,
    verbose: bool,
    **others: Any,
) -> None:
    """Export a detector with a self-test: as TorchScript, compiled code or ONNX.

    \b
    The included face detector, as TorchScript and ONNX:
      lensbox export --format torchscript,onnx --output artifacts/detector.pt
    Your own, from a module and a checkpoint (docs/checkpoint_to_device.md):
      lensbox export --model my_detector:make --weights best.pth --output mine.pt

    Prints the path of each file to stdout, progress and errors to stderr. SIGTERM ends the process with exit
    code 143. Neither SIGTERM nor SIGINT leaves a partial file.
    """
    options = read_options(ExportOptions, others)
    if verbose:
        start_reporting(logging.DEBUG)
    if size is not None and (model is not None or weights is not None):
        raise click.UsageError(
            "--size must come without --model and --weights, since it names shipped weights"
        )
    if model is None and settings:
        raise click.UsageError("--option must come with --model: the face detector takes no options")
    if weights_key is not None and (model is None or weights is None):
        raise click.UsageError("--weights-key must come with --model and --weights")
    runner = options.runner
    if runner is not None and not (runner.is_file() and os.access(runner, os.X_OK)):
        raise click.UsageError(f"--runner or LENSBOX_RUNNER must be the program lensbox_runner, got {runner}")
    paths = output_paths(output, options.formats)
    with _orderly_sigterm():
        for path in paths.values():
            require_writable_file("--output", path)
        # Imported here because torch takes seconds to load: `--help` must not wait.
        from lensbox.export.model_loader import load_model, naming_its_errors, parse_options
        from lensbox.export.pipeline import make_files
        from lensbox.model import load_detector, recommended_threshold
        from lensbox.model.weights_file import SHIPPED_SIZES
        from lensbox.runtime.op_library import load_op_libraries

        load_op_libraries(options.ops)
        if model is not None:
            _logger.info("making the detector")
            detector = load_model(model, weights, parse_options(settings), weights_key)
        else:
            _logger.info("loading the weights")
            weights = weights or SHIPPED_SIZES[size or "base"]
            detector = load_detector(weights)
            if options.score_threshold is None:
                options = replace(options, score_threshold=recommended_threshold(weights))
        with naming_its_errors(detector):
            files = make_files(detector, paths, options)
        for path, content in files.items():
            atomic_write(path, content)
            click.echo(path)


@contextlib.contextmanager
def _orderly_sigterm() -> Iterator[None]:
    """Unwind the stack at SIGTERM, which removes partial files, and exit with 143."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)  # the shells' convention

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@click.command(cls=Command)
@click.argument("file", required=False, type=FILE, metavar="[FILE]")
@OPS
@click.option(
    "--json", "as_json", is_flag=True, show_default=False, help="Print the stored metadata as JSON."
)
def info(file: Path | None, ops: tuple[Path, ...], as_json: bool) -> None:
    """Describe an artifact of any format without running its code.

    With --ops, check that the libraries have the artifact's operators; their code runs.
    Without FILE, print the versions and devices of this installation, for bug reports.
    """
    if file is None:
        if as_json or ops:
            raise click.UsageError(f"{'--json' if as_json else '--ops'} must come with a FILE")
        from lensbox.runtime.info import report

        lines = report()
    else:
        # Imported here because torch takes seconds to load: `--help` must not wait.
        from lensbox.runtime.file.archive import open_file, read_file
        from lensbox.runtime.info import describe_artifact
        from lensbox.runtime.op_library import load_op_libraries, require_ops

        data = read_file(file)
        metadata = open_file(data, str(file)).metadata
        if ops:
            load_op_libraries(ops)
            require_ops(str(file), metadata.ops)
        if as_json:
            click.echo(metadata.to_json())
            return
        lines = list(describe_artifact(data, str(file)))
    for name, value in lines:
        click.echo(f"{name}: {value}")


@click.command(cls=Command)
@click.option(
    "--new-key",
    type=FILE,
    metavar="FILE",
    help="Make a key pair: the private key FILE, to keep secret, and the public key FILE.pub.",
)
@click.option("--key", type=FILE, metavar="FILE", help="The private key to sign with.")
@click.option(
    "--artifact", "artifacts", type=FILE, multiple=True, metavar="FILE", help="File to sign. May be repeated."
)
def sign(new_key: Path | None, key: Path | None, artifacts: tuple[Path, ...]) -> None:
    """Sign artifacts, so that your public key verifies their origin (--public-key).

    Writes FILE.sig for each FILE. Prints the paths of written files to stdout.
    """
    if (new_key is None) == (key is None and not artifacts):
        raise click.UsageError("give either --new-key FILE, or --key FILE with --artifact FILE")
    if new_key is None and (key is None or not artifacts):
        raise click.UsageError("--key and --artifact must be given together")

    from lensbox.export.signing import make_keys, sign_file  # imports torch

    if new_key is not None:
        public_key = make_keys(new_key)
        _logger.info("%s is the private key and must stay secret; %s is the public key", new_key, public_key)
        click.echo(new_key)
        click.echo(public_key)
    elif key is not None:
        for artifact in artifacts:
            click.echo(sign_file(artifact, key))
