"""`lensbox evaluate`: scores a detector on labelled photographs."""

from __future__ import annotations

import json

from lensbox.common.files import atomic_write, require_writable_file, require_writable_folder
from lensbox.train.commands.arguments import EvaluateArguments
from lensbox.train.commands.choices import chosen_detector, chosen_device, load_labelled
from lensbox.train.evaluation.evaluate import detect_photographs, evaluate, score
from lensbox.train.evaluation.pictures import write_pictures


def run_evaluate(arguments: EvaluateArguments) -> None:
    """Runs `lensbox evaluate`. Raises one of `lensbox.common.errors`, with its exit code, or OSError."""
    device = chosen_device(arguments.detector.device)
    if arguments.report is not None:
        require_writable_folder("--report", arguments.report)
    if arguments.json is not None:
        require_writable_file("--json", arguments.json)
    chosen = chosen_detector(arguments.detector, device)
    data = load_labelled(arguments.data, arguments.strict, chosen.canvas, chosen.classes)
    if chosen.artifact is None:
        figures, matched = evaluate(chosen.detect, data, device, arguments.coco)
    else:
        figures, matched = score(detect_photographs(chosen.artifact, data), data, arguments.coco)
    print("\n".join(figures.lines()))
    if arguments.report is not None:
        write_pictures(data, matched, arguments.report)
        print(f"wrote {arguments.report}")
    if arguments.json is not None:
        text = json.dumps(figures.to_json(), indent=2) + "\n"
        atomic_write(arguments.json, text.encode())
