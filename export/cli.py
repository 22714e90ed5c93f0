"""`lensbox export`: weights to artifact."""

import argparse
import logging
import sys
from pathlib import Path

DEFAULT_OUTPUT = Path("artifacts") / "detector.pt"


def main(argv: list[str]) -> int:
    """Runs the command: 0 = written and tested, 2 = usage, 3 = export failed, 4 = bad weights file.

    The artifact's path goes to stdout, progress and errors to stderr.
    """
    options = _parser().parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr, force=True)
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
        return 4
    try:
        metadata = save_artifact(detector, options.output, score_threshold, options.iou_threshold)
    except (ArtifactError, OSError) as error:
        logging.error("error: %s", error)
        return 3
    logging.info(
        "%s: %d bytes, torch %s, weights %s, self-test with %d detections passed",
        options.output,
        options.output.stat().st_size,
        metadata.torch_version,
        metadata.weights_sha256[:12],
        len(metadata.self_test.scores),
    )
    print(options.output)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lensbox export", description="Writes the detector as a TorchScript artifact with a self-test."
    )
    parser.add_argument(
        "--weights",
        type=Path,
        help="weights (.safetensors) that save_detector wrote; default: the shipped ones",
    )
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT, help="file to write (%(default)s)")
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


def _fraction(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"must be between 0 and 1, got {text}")
    return value
