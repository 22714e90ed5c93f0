"""`lensbox evaluate`: scores a detector on labelled photographs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from lensbox.errors import ExitCode
from lensbox.files import atomic_write
from lensbox.train.commands.console import run_command
from lensbox.train.commands.options import (
    add_data_option,
    add_detector_options,
    chosen_detector,
    chosen_device,
    load_labelled,
)
from lensbox.train.evaluation.evaluate import evaluate
from lensbox.train.evaluation.pictures import write_pictures
from lensbox.train.writable import require_writable_file, require_writable_folder


def evaluate_main(argv: Sequence[str]) -> int:
    """Runs `lensbox evaluate`. Returns its exit code, see `docs/training.md`."""
    parser = argparse.ArgumentParser(
        prog="lensbox evaluate", description="Average precision at IoU 0.5 by box height."
    )
    add_data_option(parser)
    add_detector_options(parser)
    parser.add_argument("--coco", action="store_true", help="COCO's average precision too (pycocotools)")
    parser.add_argument("--report", type=Path, metavar="FOLDER", help="draw curves, misses, false alarms")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    arguments = parser.parse_args(argv)
    return run_command("evaluate", lambda: _evaluate(arguments))


def _evaluate(arguments: argparse.Namespace) -> int:
    device = chosen_device(arguments.device)
    if arguments.report is not None:
        require_writable_folder("--report", arguments.report)
    if arguments.json is not None:
        require_writable_file("--json", arguments.json)
    detect, _ = chosen_detector(arguments, device)
    data = load_labelled(arguments.data, arguments.strict)
    figures, matched = evaluate(detect, data, device, arguments.coco)
    print("\n".join(figures.lines()))
    if arguments.report is not None:
        write_pictures(data, matched, arguments.report)
        print(f"wrote {arguments.report}")
    if arguments.json is not None:
        text = json.dumps(figures.to_json(), indent=2) + "\n"
        atomic_write(arguments.json, text.encode())
    return ExitCode.GOOD
