"""`lensbox export`: detector and weights to artifact."""

import contextlib
import logging
import math
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from lensbox.cli.command import FILE, Command, fraction, require_runner
from lensbox.cli.writable import require_writable_file, require_writable_folder
from lensbox.errors import InputError
from lensbox.files import atomic_write

if TYPE_CHECKING:
    from torch import Tensor

DEFAULT_OUTPUT = Path("artifacts") / "detector"  # and the suffix of the format
SUFFIXES = {
    "torchscript": ".pt",
    "aoti": ".pt2",
    "onnx": ".onnx",
    "program": ".program.pt2",
    "onnx-network": ".network.onnx",
    "triton": ".triton",
}

_logger = logging.getLogger(__name__)


def _file(text: str) -> Path:
    path = Path(text)
    if path.name in ("", ".."):
        raise click.BadParameter(f"must name a file, got {text!r}")
    return path


def _formats(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    """The formats that were asked for, each once, in the order of `SUFFIXES`."""
    names = {name for text in texts for name in text.split(",")}
    if unknown := sorted(names - SUFFIXES.keys()):
        raise click.BadParameter(f"must be of {', '.join(SUFFIXES)}, got {', '.join(map(repr, unknown))}")
    return tuple(name for name in SUFFIXES if name in names)


def output_paths(output: Path | None, formats: Sequence[str]) -> dict[str, Path]:
    """Where each format goes: one alone to the very file that was named, several beside each other."""
    if output is not None and len(formats) == 1:
        return {formats[0]: output}
    stem = DEFAULT_OUTPUT if output is None else output.with_suffix("")
    return {name: stem.with_name(stem.name + SUFFIXES[name]) for name in formats}


def pixels(text: str) -> float:
    """A finite length of at least 0, for an option's `type`."""
    value = float(text)
    if not 0 <= value < math.inf:  # written so that NaN fails
        raise click.BadParameter(f"must be finite and at least 0, got {text}")
    return value


@click.command(cls=Command)
@click.option(
    "--model",
    metavar="PACKAGE.MODULE:FUNCTION",
    help="What makes the detector (docs/your_detector.md). Default: Lensbox's face detector.",
)
@click.option(
    "--weights",
    type=FILE,
    help="Weights of the model; of the face detector, a file that save_detector wrote. Default: the shipped "
    "ones.",
)
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="An argument of the model's function: a JSON value, or text. May be repeated.",
)
@click.option(
    "--format",
    "formats",
    multiple=True,
    default=("torchscript",),
    callback=_formats,
    metavar="NAME",
    help="torchscript: for every runtime of Lensbox. aoti: detect alone, compiled for this machine and "
    "--device. onnx: detect alone, in standard operators. program: detect alone, as torch.export has it, for "
    "other compilers. onnx-network: the face detector's raw predictions. triton: a folder, the model "
    "repository of a Triton server. Several with commas, or repeated (docs/formats.md).",
)
@click.option(
    "--plain-ops",
    is_flag=True,
    show_default=False,
    help="Of program: torch's own operators alone, so that it loads where Lensbox is not installed.",
)
@click.option(
    "--output",
    type=_file,
    metavar="FILE",
    help="File to write, or folder for triton; of several formats, each with its own suffix: .pt, .pt2, "
    ".onnx, .program.pt2, .network.onnx, .triton. Default: artifacts/detector.pt and so on.",
)
@click.option(
    "--score-threshold",
    type=fraction,
    metavar="0..1",
    help="Least score of a detection unless a caller says otherwise. Default: the detector's own; of "
    "the face detector, what its weights recommend, or 0.5.",
)
@click.option(
    "--iou-threshold",
    type=fraction,
    metavar="0..1",
    help="Largest overlap of two detections unless a caller says otherwise. Default: the detector's own.",
)
@click.option(
    "--ops",
    type=FILE,
    multiple=True,
    metavar="FILE",
    help="A shared library with operators that the model uses. May be repeated.",
)
@click.option(
    "--carry-ops",
    is_flag=True,
    show_default=False,
    help="Put these libraries into the artifact, for machines of this kind that load it as trusted.",
)
@click.option(
    "--dtype",
    type=click.Choice(["float32", "tf32", "float16", "bfloat16"]),
    default="float32",
    help="Precision of convolutions and linear layers. What another than float32 changes is measured.",
)
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="cpu",
    help="Where to measure it, and what aoti compiles for. The other files run on any device.",
)
@click.option(
    "--pictures",
    type=FILE,
    multiple=True,
    metavar="FILE",
    help="Photographs to measure it on, beside drawn pictures. May be repeated.",
)
@click.option(
    "--tolerance",
    type=pixels,
    default="2",
    metavar="PIXELS",
    help="Largest change of a box, in pixels of the canvas, for which an artifact is written.",
)
@click.option(
    "--parity/--no-parity",
    default=True,
    help="Compare the files with the detector, in each runtime and in batches, and refuse those that stray.",
)
@click.option(
    "--runner",
    type=FILE,
    metavar="FILE",
    help="lensbox_runner, to compare in C++ as well. Default: the environment variable LENSBOX_RUNNER.",
)
@click.option("--report", type=_file, metavar="FILE", help="Write the comparison as Markdown, too.")
def export(
    model: str | None,
    weights: Path | None,
    options: tuple[str, ...],
    formats: tuple[str, ...],
    plain_ops: bool,
    output: Path | None,
    score_threshold: float | None,
    iou_threshold: float | None,
    ops: tuple[Path, ...],
    carry_ops: bool,
    dtype: str,
    device: str,
    pictures: tuple[Path, ...],
    tolerance: float,
    parity: bool,
    runner: Path | None,
    report: Path | None,
) -> None:
    """Writes a detector with a self-test: as TorchScript, compiled code, ONNX, a graph of torch.export, or
    for a Triton server.

    The path of each file goes to stdout, progress and errors to stderr. SIGTERM ends the process with 143,
    and leaves nothing half-written, as SIGINT does.
    """
    with _orderly_sigterm():
        # Imported here, as torch takes seconds to load: `--help` must not wait for it.
        from lensbox.export.formats import make_files
        from lensbox.export.model_loader import load_model, parse_options
        from lensbox.export.parity import ParityOptions
        from lensbox.export.precision import PrecisionOptions
        from lensbox.export.user_ops import load_op_libraries
        from lensbox.model import Detector, load_detector, recommended_threshold
        from lensbox.runtime.device import choose_device

        proven = {"aoti", "onnx", "program", "triton"} & {*formats}
        if pictures and not parity and dtype == "float32" and not proven:
            raise click.UsageError(
                "--pictures must come with --parity, another --dtype than float32, or --format aoti, onnx, "
                "program or triton"
            )
        if plain_ops and "program" not in formats:
            raise click.UsageError(
                "--plain-ops must come with --format program: ONNX files hold standard operators anyway, the "
                "others run in Lensbox's runtimes"
            )
        if dtype != "float32" and not {"torchscript", "aoti"}.issuperset(formats):
            raise click.UsageError(
                "--dtype must be float32 for an ONNX file or exported program, whose runtimes choose "
                f"themselves, and for a repository of Triton, which holds an ONNX file, got {dtype}"
            )
        if carry_ops and not ops:
            raise click.UsageError("--carry-ops must come with --ops")
        if carry_ops and "torchscript" not in formats:
            raise click.UsageError("--carry-ops must come with --format torchscript: other files carry none")
        if not parity and (runner is not None or report is not None):
            raise click.UsageError("--runner and --report must come with --parity")
        program = (runner or _runner()) if parity else None
        require_runner(program)
        paths = output_paths(output, formats)
        if report in paths.values():
            raise click.UsageError(f"--report must be another file than --output, got {report}")
        for name, path in paths.items():
            (require_writable_folder if name == "triton" else require_writable_file)("--output", path)
        if report is not None:
            require_writable_file("--report", report)
        arguments = parse_options(options)
        load_op_libraries(ops)
        precision = PrecisionOptions(
            dtype, choose_device(device), tolerance, [_picture(path) for path in pictures]
        )
        detector: Detector
        if model is None:
            if arguments:
                raise click.UsageError("--option must come with --model: the face detector takes none")
            _logger.info("loading the weights")
            detector = load_detector(weights)
            if score_threshold is None:
                score_threshold = recommended_threshold(weights)
        else:
            _logger.info("making the detector")
            detector = load_model(model, weights, arguments)
        carried = ops if carry_ops else ()
        thresholds = score_threshold, iou_threshold
        compared = None
        if parity:
            devices = ("cpu",) if precision.device.type == "cpu" else ("cpu", precision.device.type)
            compared = ParityOptions(devices, program, precision.pictures, tolerance)
        files, text = make_files(detector, paths, thresholds, precision, carried, compared, plain_ops)
        if report is not None:
            files[report] = text.encode()
        for path, content in files.items():
            atomic_write(path, content)
            click.echo(path)


@click.command(cls=Command)
@click.option(
    "--new-key",
    type=FILE,
    metavar="FILE",
    help="Make a pair of keys: FILE, to keep secret, and FILE.pub, for those who load what you sign.",
)
@click.option("--key", type=FILE, metavar="FILE", help="The private key to sign with.")
@click.option(
    "--artifact", "artifacts", type=FILE, multiple=True, metavar="FILE", help="File to sign. May be repeated."
)
def sign(new_key: Path | None, key: Path | None, artifacts: tuple[Path, ...]) -> None:
    """Signs artifacts, so that whoever has your public key can tell that they are yours (--public-key).

    Writes FILE.sig beside each FILE. The paths of what is written go to stdout.
    """
    if (new_key is None) == (key is None and not artifacts):
        raise click.UsageError("give --new-key FILE alone, or --key FILE with --artifact FILE")
    if new_key is None and (key is None or not artifacts):
        raise click.UsageError("--key and --artifact must be given together")

    from lensbox.export.signing import make_keys, sign_file  # imports torch

    if new_key is not None:
        public_key = make_keys(new_key)
        _logger.info("%s signs and must stay secret; %s checks", new_key, public_key)
        click.echo(new_key)
        click.echo(public_key)
    elif key is not None:
        for artifact in artifacts:
            click.echo(sign_file(artifact, key))


def _picture(path: Path) -> "Tensor":
    """A photograph of `--pictures`."""
    from lensbox.runtime.image_io import read_image

    try:
        return read_image(path)
    except FileNotFoundError as error:
        raise InputError(f"--pictures must name an image file, got {path}") from error


def _runner() -> Path | None:
    """The one that the environment names."""
    return Path(name) if (name := os.environ.get("LENSBOX_RUNNER")) else None


@contextlib.contextmanager
def _orderly_sigterm() -> Iterator[None]:
    """SIGTERM unwinds the stack, so that what is half-written goes, and ends the process with 143."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)  # the shells' convention

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
