"""Run `lensbox evaluate`: score a detector, or the detections in a file, on labelled photographs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch

from lensbox.common.files import atomic_write, require_writable_file
from lensbox.model import FaceDetector, load_detector
from lensbox.ops import letterbox
from lensbox.runtime import Artifact, Canvas, load_artifact
from lensbox.runtime.device import choose_device
from lensbox.runtime.torchscript import torchscript_call
from lensbox.train.cli import EvaluateArguments
from lensbox.train.data.coco import annotation_file
from lensbox.train.data.labels import ImagesAndProblems, read_labels, report_problems
from lensbox.train.evaluation.coco_precision import read_results, results_of, summary
from lensbox.train.evaluation.evaluate import Detect, detect_all, detect_photographs, score
from lensbox.train.evaluation.evaluation_set import FACE_CANVAS, EvaluationSet, load_evaluation_set
from lensbox.train.run.checkpoint import load_average
from lensbox.train.settings import ConfigError


def run_evaluate(arguments: EvaluateArguments) -> None:
    """Run `lensbox evaluate`. Raise one of `lensbox.common.errors`, with its exit code, or OSError."""
    data, layout = arguments.data, arguments.labels
    coco_file = annotation_file(Path(data[0])) if len(data) == 1 and layout in (None, "coco") else None
    if arguments.detections is not None:
        if coco_file is None:
            raise ConfigError("--detections needs one COCO file: --data instances.json")
        print("\n".join(summary(coco_file, read_results(arguments.detections))))
        return
    if arguments.artifact is None and (arguments.public_key is not None or arguments.ops):
        raise ConfigError(f"{'--ops' if arguments.ops else '--public-key'} is for --artifact, got none")
    device = choose_device(arguments.device)
    if arguments.json_file is not None:
        require_writable_file("--json", arguments.json_file)
    artifact = None
    if arguments.artifact is not None:
        artifact = load_artifact(
            arguments.artifact, device, public_key=arguments.public_key, ops=arguments.ops
        )
        canvas, classes = artifact.metadata.canvas, artifact.classes
        detect: Detect = artifact.detect_named if classes else artifact.detect
    else:
        canvas, classes = FACE_CANVAS, ()
        detect = _face_detector(arguments).to(device).detect
    orientation = arguments.orientation or (artifact.metadata.reading.orientation if artifact else "exif")
    labelled = read_labels(data, arguments.strict, layout, "val", orientation)
    photographs = load_labelled(labelled, arguments.strict, canvas, classes)
    if artifact is None or _fits_as_lensbox(artifact):
        found = detect_all(detect, photographs.canvases, device)
    else:
        found = detect_photographs(artifact, photographs)
    figures = score(found, photographs, arguments.coco)
    print("\n".join(figures.lines()))
    if arguments.coco and coco_file is not None:
        print("\n".join(summary(coco_file, results_of(found, photographs, coco_file))))
    if arguments.json_file is not None:
        atomic_write(arguments.json_file, (json.dumps(figures.to_json(), indent=2) + "\n").encode())


def _face_detector(arguments: EvaluateArguments) -> FaceDetector:
    if arguments.checkpoint is not None:
        return load_average(arguments.checkpoint)
    return load_detector(arguments.weights)


def _fits_as_lensbox(artifact: Artifact) -> bool:
    """Return whether an artifact makes the canvases that `load_evaluation_set` makes."""
    generator = torch.Generator().manual_seed(0)
    image = torch.randint(0, 256, (3, 40, 120), dtype=torch.uint8, generator=generator)
    with torchscript_call():
        canvases, _ = artifact.module.preprocess([image.to(artifact.device)])
    return torch.equal(canvases.cpu(), letterbox([image], *artifact.metadata.canvas.as_tuple)[0])


def load_labelled(
    labelled: ImagesAndProblems, strict: bool, canvas: Canvas = FACE_CANVAS, classes: Sequence[str] = ()
) -> EvaluationSet:
    """Return the photographs to score on, and report the skipped ones. Raise DataError."""
    images, problems = labelled
    data = load_evaluation_set(images, canvas=canvas, classes=classes)
    report_problems(problems + data.problems, strict)
    return data
