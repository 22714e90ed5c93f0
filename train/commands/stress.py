"""`lensbox stress`: degrades two portraits until a detector misses them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from lensbox.errors import ExitCode
from lensbox.samples.photos import face_free_photos
from lensbox.train.commands.console import run_command
from lensbox.train.commands.options import add_detector_options, chosen_detector, chosen_device
from lensbox.train.evaluation.contact_sheet import save_picture
from lensbox.train.stress.degradations import FACTORS
from lensbox.train.stress.stress_sheet import stress_sheet
from lensbox.train.stress.stress_test import (
    false_alarm_line,
    sample_portraits,
    search_face_free,
    stress_test,
    table,
)
from lensbox.train.writable import require_writable_file


def stress_main(argv: Sequence[str]) -> int:
    """Runs `lensbox stress`. Returns its exit code, see `docs/training.md`."""
    parser = argparse.ArgumentParser(
        prog="lensbox stress",
        description="Degrade two portraits in the public domain until the detector misses them; draw where.",
    )
    parser.add_argument("--output", type=Path, required=True, metavar="PNG", help="the picture to write")
    parser.add_argument(
        "--threshold",
        type=float,
        help="least score of a face (what weights or artifact recommend, otherwise 0.5)",
    )
    add_detector_options(parser)
    arguments = parser.parse_args(argv)
    if arguments.threshold is not None and not 0 <= arguments.threshold <= 1:
        parser.error(f"--threshold must be between 0 and 1, got {arguments.threshold}")
    if arguments.output.suffix != ".png":
        parser.error(f"--output must be a file that ends in .png, got {arguments.output}")
    return run_command("stress", lambda: _stress(arguments))


def _stress(arguments: argparse.Namespace) -> int:
    device = chosen_device(arguments.device)
    require_writable_file("--output", arguments.output)
    detect, recommended = chosen_detector(arguments, device)
    threshold = recommended if arguments.threshold is None else arguments.threshold
    results = stress_test(detect, sample_portraits(), FACTORS, device)
    face_free = search_face_free(detect, face_free_photos(), device)
    print(table(results, threshold))
    print(f"\n{false_alarm_line(face_free, threshold)}")
    save_picture(stress_sheet(results, face_free, threshold), arguments.output)
    print(f"\nwrote {arguments.output}")
    return ExitCode.GOOD
