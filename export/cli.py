"""`lensbox export`: weights to artifact."""

import argparse
import contextlib
import logging
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from lensbox.errors import ExitCode, InputError

DEFAULT_OUTPUT = Path("artifacts") / "detector.pt"


def main(argv: list[str]) -> int:
    """Runs the command: 0 = written and tested, 2 = usage, 3 = export failed, 4 = bad weights.

    The artifact's path goes to stdout, progress and errors to stderr. SIGTERM ends the process with 143, and
    leaves nothing half-written, as SIGINT does.
    """
    options = _parser().parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr, force=True)
    with _orderly_sigterm():
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    # Imported here, as torch takes seconds to load: `--help` must not wait for it.
    from lensbox.errors import ArtifactError
    from lensbox.export.artifact_writer import save_artifact
    from lensbox.model import load_detector, recommended_threshold

    logging.info("loading the weights")
    try:
        detector = load_detector(options.weights)
        score_threshold = options.score_threshold
        if score_threshold is None:
            score_threshold = recommended_threshold(options.weights)
    except (OSError, ValueError) as error:
        logging.error("error: %s", error)
        return ExitCode.BAD_INPUT
    try:
        metadata = save_artifact(detector, options.output, score_threshold, options.iou_threshold)
    except InputError as error:
        logging.error("error: %s", error)
        return ExitCode.BAD_INPUT
    except (ArtifactError, OSError) as error:
        logging.error("error: %s", error)
        return ExitCode.UNUSABLE
    logging.info(
        "%s: %d bytes, torch %s, weights %s, self-test with %d detections passed",
        options.output,
        options.output.stat().st_size,
        metadata.torch_version,
        metadata.weights_sha256[:12],
        len(metadata.self_test.scores),
    )
    print(options.output)
    return ExitCode.GOOD


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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lensbox export", description="Writes the detector as a TorchScript artifact with a self-test."
    )
    parser.add_argument(
        "--weights",
        type=Path,
        help="weights (.safetensors) that save_detector wrote; default: the shipped ones",
    )
    parser.add_argument("--output", type=_file, default=DEFAULT_OUTPUT, help="file to write (%(default)s)")
    parser.add_argument(
        "--score-threshold",
        type=_fraction,
        metavar="0..1",
        help="least score of a face unless a caller says otherwise (what the weights recommend, or 0.5)",
    )
    parser.add_argument(
        "--iou-threshold",
        type=_fraction,
        default=0.5,
        metavar="0..1",
        help="largest overlap of two faces unless a caller says otherwise (%(default)s)",
    )
    return parser


def _file(text: str) -> Path:
    path = Path(text)
    if path.name in ("", ".."):
        raise argparse.ArgumentTypeError(f"must name a file, got {text!r}")
    return path


def _fraction(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"must be between 0 and 1, got {text}")
    return value
