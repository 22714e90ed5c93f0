"""Score a detector, in PyTorch or as an artifact, on labelled photographs; the command `lensbox evaluate`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from lensbox.common.errors import InputError
from lensbox.common.files import atomic_write, require_writable_file
from lensbox.model import load_detector
from lensbox.model.protocol_check import answer_of, named
from lensbox.ops.canvas import fit_to_canvases, place_boxes
from lensbox.runtime import Artifact, Canvas, load_artifact
from lensbox.runtime.device import choose_device
from lensbox.runtime.torchscript import torchscript_call
from lensbox.train.data.coco import annotation_file
from lensbox.train.data.labels import LabelledImage, read_labels, report_problems
from lensbox.train.evaluation.average_precision import SCORE_THRESHOLD, ImageDetections
from lensbox.train.evaluation.coco_precision import read_results, results_of, summary
from lensbox.train.evaluation.evaluation_set import EvaluationSet, load_evaluation_set
from lensbox.train.evaluation.figures import Figures, score
from lensbox.train.settings import ConfigError, EvaluateInputs

NMS_IOU = 0.5
BATCH = 64


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
    device = choose_device(inputs.device)
    detector: nn.Module | Artifact
    if inputs.artifact is not None:
        detector = load_artifact(inputs.artifact, device, public_key=inputs.public_key, ops=inputs.ops)
    else:
        detector = load_detector(inputs.weights).to(device)
    stored = detector.metadata.reading.orientation if isinstance(detector, Artifact) else "exif"
    labelled, problems = read_labels(data, inputs.strict, "val", inputs.orientation or stored)
    photographs = load_for(detector, labelled)
    report_problems(problems + photographs.problems, inputs.strict)
    found = detect_all(detector, photographs)
    figures = score(found, photographs, inputs.coco)
    print("\n".join(figures.lines()))
    if inputs.coco and coco_file is not None:
        print("\n".join(summary(coco_file, results_of(found, photographs, coco_file))))
    if inputs.json is not None:
        atomic_write(inputs.json, (json.dumps(figures.to_json(), indent=2) + "\n").encode())


def evaluate(
    detector: nn.Module | Artifact, photographs: Sequence[LabelledImage], coco: bool = False
) -> Figures:
    """Return the figures of a detector on labelled photographs, which are fitted to its canvas.

    Args:
        detector: an artifact, or a module with `specification` and `detect` (docs/your_detector.md), which is
            called in eval mode and without gradients on the device of its parameters.
        photographs: of `read_labels`.
        coco: COCO's figures too.

    Raises:
        InputError: a module has no specification or its own `preprocess`, or boxes or scores are not finite.
    """
    data = load_for(detector, photographs)
    return score(detect_all(detector, data), data, coco)


def load_for(detector: nn.Module | Artifact, photographs: Sequence[LabelledImage]) -> EvaluationSet:
    """Load photographs for the canvas and the classes of a detector. Raise InputError."""
    if isinstance(detector, Artifact):
        canvas, classes = detector.metadata.canvas, detector.classes
    elif (specification := cast(Any, getattr(detector, "specification", None))) is not None:
        canvas, classes = Canvas.of(specification), specification.classes
    else:
        raise InputError("a detector must have a specification (docs/your_detector.md), got none")
    return load_evaluation_set(photographs, canvas=canvas, classes=classes)


def detect_all(detector: nn.Module | Artifact, data: EvaluationSet) -> list[ImageDetections]:
    """Return the detections in each photograph, in pixels of Lensbox's canvas. Raise InputError.

    data: of the canvas and the classes of the detector.
    """
    if isinstance(detector, Artifact):
        if not _fits_as_lensbox(detector.module, detector.device, data.canvas):
            return _detect_photographs(detector, data)
        detect: Any = detector.detect_named if data.classes else detector.detect
        return _detect_canvases(detect, data.canvases, detector.device)
    device = next((value.device for value in detector.parameters()), torch.device("cpu"))
    if hasattr(detector, "preprocess") and not _fits_as_lensbox(detector, device, data.canvas):
        raise InputError(
            "a detector with its own preprocess is scored as an artifact: export it, got a module"
        )
    training = detector.training
    detector.eval()
    try:
        return _detect_canvases(partial(answer_of, detector), data.canvases, device)
    finally:
        detector.train(training)


def _detect_canvases(detect: Any, canvases: Tensor, device: torch.device) -> list[ImageDetections]:
    found = []
    for batch in canvases.split(BATCH):
        outputs = named(detect(batch.to(device), SCORE_THRESHOLD, NMS_IOU))
        boxes, scores = outputs["boxes"].cpu(), outputs["scores"].cpu()
        labels = outputs.get("labels", torch.zeros_like(scores)).cpu()
        for index, count in enumerate(outputs["counts"].tolist()):
            found.append(_checked(boxes[index, :count], scores[index, :count], labels[index, :count]))
    return found


def _checked(boxes: Tensor, scores: Tensor, labels: Tensor) -> ImageDetections:
    """Return the detections of an image, on the CPU, for scoring. Raise InputError."""
    for name, values in (("boxes", boxes), ("scores", scores)):
        if not values.is_floating_point():
            raise InputError(f"{name} of detections must be a floating-point tensor, got {values.dtype}")
        if not (is_finite := values.isfinite()).all():
            raise InputError(f"{name} of detections must be finite numbers, got {values[~is_finite][0]}")
    return ImageDetections(boxes.double().numpy(), scores.double().numpy(), labels.long().numpy())


def _fits_as_lensbox(module: Any, device: torch.device, canvas: Canvas) -> bool:
    """Return whether a detector's `preprocess` makes the canvases that `load_evaluation_set` makes."""
    generator = torch.Generator().manual_seed(0)
    image = torch.randint(0, 256, (3, 40, 120), dtype=torch.uint8, generator=generator)
    with torchscript_call():
        canvases, _ = module.preprocess([image.to(device)], None)
    return torch.equal(canvases.cpu(), fit_to_canvases([image], None, *canvas.as_tuple)[0])


def _detect_photographs(artifact: Artifact, data: EvaluationSet) -> list[ImageDetections]:
    """Run an artifact with its own preprocessing on photographs. Boxes are in Lensbox's canvas pixels."""
    results = artifact.detect_files(
        (image.read_bytes() for image in data.files),
        score_threshold=SCORE_THRESHOLD,
        iou_threshold=NMS_IOU,
        orientation=data.files[0].orientation,
    )
    found = []
    for result, geometry, file in zip(results, data.geometry, data.files, strict=True):
        if isinstance(result, InputError):
            raise InputError(f"{file.name} cannot be scored: {result}") from result
        labels = torch.zeros(len(result.boxes)) if result.labels is None else result.labels
        found.append(_checked(place_boxes(result.boxes.double(), geometry), result.scores, labels))
    return found
