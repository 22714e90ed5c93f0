"""Turn the options that commands share into settings, a detector and photographs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from lensbox.model import load_detector
from lensbox.ops import letterbox
from lensbox.runtime import Artifact, Canvas
from lensbox.runtime.torchscript import torchscript_call
from lensbox.train.cli import DetectorArguments, TrainArguments
from lensbox.train.data.labels import DataError, Problem, read_labels
from lensbox.train.errors import ConfigError
from lensbox.train.evaluation.evaluate import Detect
from lensbox.train.evaluation.evaluation_set import FACE_CANVAS, EvaluationSet, load_evaluation_set
from lensbox.train.run.checkpoint import load_average
from lensbox.train.settings import CONFIG_FILE, parse_assignment, read_config

MOST_PROBLEMS = 20

logger = logging.getLogger(__name__)


def use_fast_kernels() -> None:
    """Let cuDNN choose kernels by timing them, and let GPUs round float32 products to TF32."""
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True


def given_settings(arguments: TrainArguments) -> dict[str, Any]:
    """Return the settings of files and `--set`; a resumed run lays them over its earlier settings."""
    values: dict[str, Any] = {}
    earlier = arguments.output / CONFIG_FILE
    if arguments.resume and earlier.is_file():
        values.update(read_config(earlier))
    for path in arguments.config:
        values.update(read_config(path))
    values.update(parse_assignment(text) for text in arguments.sets)
    return values


class Chosen(NamedTuple):
    """A detector to score.

    canvas: its input. classes: names by label; empty for a detector of one kind. artifact: set only if it
    fits photographs to its canvas in its own way.
    """

    detect: Detect
    canvas: Canvas = FACE_CANVAS
    classes: tuple[str, ...] = ()
    artifact: Artifact | None = None


def chosen_detector(arguments: DetectorArguments, device: torch.device) -> Chosen:
    """Return the detector that the options name.

    Raises:
        ConfigError: a public key or an op library is given without an artifact.
        InputError: weights or checkpoint are missing or damaged.
        ArtifactError: the artifact is missing, damaged or not signed.
    """
    if arguments.artifact is None and (arguments.public_key is not None or arguments.ops):
        raise ConfigError(f"{'--ops' if arguments.ops else '--public-key'} is for --artifact, got none")
    if arguments.artifact is not None:
        from lensbox.runtime.loading import load_artifact

        artifact = load_artifact(
            arguments.artifact, device, public_key=arguments.public_key, ops=arguments.ops
        )
        canvas = artifact.metadata.canvas
        detect = artifact.detect_named if artifact.classes else artifact.detect
        own = None if _fits_as_lensbox(artifact, canvas) else artifact
        return Chosen(detect, canvas, artifact.classes, own)
    if arguments.checkpoint is not None:
        return Chosen(load_average(arguments.checkpoint).to(device).detect)
    return Chosen(load_detector(arguments.weights).to(device).detect)


def _fits_as_lensbox(artifact: Artifact, canvas: Canvas) -> bool:
    """Return whether an artifact makes the canvases that `load_evaluation_set` makes."""
    generator = torch.Generator().manual_seed(0)
    image = torch.randint(0, 256, (3, 40, 120), dtype=torch.uint8, generator=generator)
    with torchscript_call():
        canvases, _ = artifact.module.preprocess([image.to(artifact.device)])
    return torch.equal(canvases.cpu(), letterbox([image], *canvas.as_tuple)[0])


def load_labelled(
    paths: Sequence[str],
    layout: str | None,
    strict: bool,
    canvas: Canvas = FACE_CANVAS,
    classes: Sequence[str] = (),
) -> EvaluationSet:
    """Return the photographs to score on, and report the skipped ones. Raise DataError."""
    images, problems = read_labels(paths, strict, layout, "val")
    data = load_evaluation_set(images, canvas=canvas, classes=classes)
    report_problems(problems + data.problems, strict)
    return data


def report_problems(problems: Sequence[Problem], strict: bool) -> None:
    """Log skipped rows and images, in at most `MOST_PROBLEMS` lines. Raise DataError if `strict`."""
    for problem in problems[:MOST_PROBLEMS]:
        logger.warning("skipped: %s", problem)
    if len(problems) > MOST_PROBLEMS:
        logger.warning("skipped: %d more", len(problems) - MOST_PROBLEMS)
    if strict and problems:
        raise DataError(str(problems[0]))
