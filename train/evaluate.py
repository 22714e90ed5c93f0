"""Run `lensbox evaluate`: score a detector, or the detections in a file, on labelled photographs."""

from __future__ import annotations

import json

from torch import nn

from lensbox.common.files import atomic_write, require_writable_file
from lensbox.model import load_detector
from lensbox.runtime import Artifact, load_artifact
from lensbox.runtime.device import choose_device
from lensbox.train.data.coco import annotation_file
from lensbox.train.data.labels import read_labels, report_problems
from lensbox.train.evaluation.coco_precision import read_results, results_of, summary
from lensbox.train.evaluation.evaluate import canvas_and_classes, detect_all
from lensbox.train.evaluation.evaluation_set import load_evaluation_set
from lensbox.train.evaluation.figures import score
from lensbox.train.settings import ConfigError, EvaluateInputs


def run_evaluate(inputs: EvaluateInputs) -> None:
    """Run `lensbox evaluate`. Raise one of `lensbox.common.errors`, with its exit code, or OSError."""
    data = inputs.data
    coco_file = annotation_file(data[0]) if len(data) == 1 else None
    if inputs.detections is not None:
        if coco_file is None:
            raise ConfigError("--detections needs one COCO file: --data instances.json")
        print("\n".join(summary(coco_file, read_results(inputs.detections))))
        return
    if inputs.artifact is None and (inputs.public_key is not None or inputs.ops):
        raise ConfigError(f"{'--ops' if inputs.ops else '--public-key'} is for --artifact, got none")
    if inputs.json is not None:
        require_writable_file("--json", inputs.json)
    detector = _detector(inputs)
    stored = detector.metadata.reading.orientation if isinstance(detector, Artifact) else "exif"
    labelled = read_labels(data, inputs.strict, "val", inputs.orientation or stored)
    canvas, classes = canvas_and_classes(detector)
    photographs = load_evaluation_set(labelled[0], canvas=canvas, classes=classes)
    report_problems(labelled[1] + photographs.problems, inputs.strict)
    found = detect_all(detector, photographs)
    figures = score(found, photographs, inputs.coco)
    print("\n".join(figures.lines()))
    if inputs.coco and coco_file is not None:
        print("\n".join(summary(coco_file, results_of(found, photographs, coco_file))))
    if inputs.json is not None:
        atomic_write(inputs.json, (json.dumps(figures.to_json(), indent=2) + "\n").encode())


def _detector(inputs: EvaluateInputs) -> nn.Module | Artifact:
    device = choose_device(inputs.device)
    if inputs.artifact is not None:
        return load_artifact(inputs.artifact, device, public_key=inputs.public_key, ops=inputs.ops)
    return load_detector(inputs.weights).to(device)
