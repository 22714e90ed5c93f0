"""Verify that a file finds the same as its detector in each runtime, on each device and in batches."""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from lensbox.common.errors import ArtifactError
from lensbox.common.files import temporary_folder
from lensbox.export.options import ExportOptions
from lensbox.export.verify.reference import Reference, one_thread
from lensbox.export.verify.runner import RunnerTrial, has_onnxruntime
from lensbox.export.verify.tolerances import Allowance, tolerance_of
from lensbox.model.protocol_check import Answer
from lensbox.runtime.detect.artifact import Artifact
from lensbox.runtime.detect.detection_sets import Difference, Found, found_in
from lensbox.runtime.file.archive import looks_like_onnx
from lensbox.runtime.file.metadata import ArtifactMetadata
from lensbox.runtime.loading import load_artifact_bytes

_logger = logging.getLogger(__name__)

_OTHER_BATCH = 7  # batch size for further thresholds
# If scores tie, rounding alone exchanges detections; a file may exchange this many times as many. A file with
# nothing in common exchanges 2 for each detection: one is lost, and one is new.
_UNSTABLE_FACTOR = 1.5
_MOST_UNSTABLE = 1.8


class Comparison(NamedTuple):
    """The differences that a comparison with the detector found. where: file, runtime and device."""

    where: str
    batch: int
    canvases: int
    tolerance: Allowance
    difference: Difference

    def __str__(self) -> str:
        found, limits = self.difference, self.tolerance
        return (
            f"{self.where} in batches of {self.batch}: {found.expected} detections in {self.canvases} "
            f"pictures, boxes within {max(found.boxes, default=0.0):.2g} px (at most {limits.boxes:g}), "
            f"scores within {found.scores:.2g} (at most {limits.scores:g}), {found.others} come or go"
        )


@dataclass(frozen=True)
class Comparer:
    """Compares detections with the detector's. where: names file, runtime and device in messages."""

    reference: Reference
    tolerance: Allowance
    where: str

    def compare_detect(
        self, detect: Callable[[Tensor], Answer], thresholds: tuple[float, float], batches: Sequence[int]
    ) -> list[Comparison]:
        """Compare a model at fixed thresholds in batches; return what was compared.

        detect: takes canvases uint8 [B, c, h, w]; returns outputs by name. Raises ArtifactError if the
        detections differ.
        """
        expected, slots = self.reference.found(thresholds), self.reference.slots
        comparisons = []
        for batch in batches:
            repeats = -(-batch // len(self.reference.canvases))  # a large batch holds canvases repeatedly
            canvases = self.reference.canvases.repeat(repeats, 1, 1, 1)
            answers = [detect(part) for part in canvases[: max(batch, len(expected))].split(batch)]
            found = [
                found_in(answer, slots, index) for answer in answers for index in range(len(answer["counts"]))
            ]
            comparisons.append(self.compare(expected, found, thresholds, batch))
        return comparisons

    def compare(
        self, expected: Sequence[Found], found: Sequence[Found], thresholds: tuple[float, float], batch: int
    ) -> Comparison:
        """Log and return a comparison. Raises ArtifactError for differences beyond the tolerance."""
        difference = self.difference(expected, found, thresholds)
        if faults := self.faults(difference, thresholds):
            raise ArtifactError(
                f"{self.where} does not find what the detector finds, in batches of {batch} at thresholds of "
                f"{thresholds[0]:g} and {thresholds[1]:g}: {'; '.join(faults)}"
            )
        comparison = Comparison(self.where, batch, len(found), self.tolerance, difference)
        _logger.info("%s", comparison)
        return comparison

    def difference(
        self, expected: Sequence[Found], actual: Sequence[Found], thresholds: tuple[float, float]
    ) -> Difference:
        """Compare the detections of all canvases; `expected` is repeated if it is shorter."""
        difference = Difference()
        for index, found in enumerate(actual):
            wanted = expected[index % len(expected)]
            difference.add(wanted, found, thresholds, self.tolerance.limits(wanted), f"canvas {index}")
        return difference

    def faults(self, difference: Difference, thresholds: tuple[float, float]) -> list[str]:
        """Return a sentence for each difference beyond rounding. thresholds: of the comparison."""
        tolerance = self.tolerance
        if not difference.unexplained and difference.exchanged <= tolerance.exchanged * difference.expected:
            return []
        share = self.reference.unstable_share(thresholds)
        allowed = min(_UNSTABLE_FACTOR * share, _MOST_UNSTABLE) * difference.expected
        if share > tolerance.exchanged and difference.others <= allowed:
            _logger.info(
                "%d of %d detections differ because scores tie and rounding decides",
                difference.others,
                difference.expected,
            )
            return []
        return [
            f"{difference.others} of {difference.expected} detections are missing, new, or moved by more "
            f"than {tolerance.boxes:g} px of the canvas (by up to {difference.moved:.3g}) or "
            f"{tolerance.scores:g} of the score (by up to {difference.score_moved:.3g})",
            *difference.unexplained[:3],
        ]

    def require_loss(self, loss: float) -> None:
        """Raise ArtifactError if the relative change of the loss is beyond the tolerance."""
        expected, most = self.reference.loss, self.tolerance.loss
        change = 0.0 if loss == expected else abs(loss - expected) / abs(expected) if expected else math.inf
        if not change <= most:  # written so that NaN fails
            raise ArtifactError(
                f"{self.where}: the relative change of the loss is {change:.3g}, at most {most:g} is allowed"
            )


def verify(
    content: bytes,
    name: str,
    metadata: ArtifactMetadata,
    reference: Reference,
    options: ExportOptions,
    *,
    devices: Sequence[str] = ("cpu",),
    more_batches: Sequence[int] = (),
) -> list[Comparison]:
    """Load a file, run its self-test and compare it with its detector; return what was compared.

    name: the file's name in errors. devices: to compare on. more_batches: batch sizes to compare in Python,
    in addition to the reference's. Raises ArtifactError if the detections differ.
    """
    comparisons = []
    dtype = metadata.precision.dtype if metadata.precision else "float32"
    runner = _runner_for(content, name, options.runner)
    with one_thread():
        for device in devices:
            tolerance = tolerance_of(dtype, device, options.tolerance)
            artifact = load_artifact_bytes(content, name, device)
            try:
                report = artifact.self_test()
            except ArtifactError:
                raise
            except (RuntimeError, ValueError) as error:  # raised by the compiled code
                reason = str(error).split("\nException raised from")[0]  # without torch's C++ stack
                raise ArtifactError(f"{name} cannot be run on {device}: {reason}") from error
            if not report.passed:
                raise ArtifactError(f"{name} fails its self-test: {'; '.join(report.failures)}")
            _require_dtypes(artifact.detect_named(reference.canvases[:1]), metadata, name)
            comparer = Comparer(reference, tolerance, f"{name} with Python on {device}")
            comparisons += _in_python(artifact, comparer, more_batches)
            if runner is not None:
                comparer = Comparer(reference, tolerance, f"{name} with C++ on {device}")
                with temporary_folder() as folder:
                    canvases = reference.canvases
                    trial = RunnerTrial(folder, runner, content, name, device, canvases, options.ops)
                    comparisons += _in_cpp(trial, metadata, comparer)
    return comparisons


def _require_dtypes(answer: Answer, metadata: ArtifactMetadata, name: str) -> None:
    dtypes = {output: str(value.dtype).removeprefix("torch.") for output, value in answer.items()}
    wanted = {output: metadata.output[output]["dtype"] for output in metadata.outputs}
    if dtypes != wanted:
        raise ArtifactError(f"{name} must have outputs of the dtypes {wanted}, got {dtypes}")


def _runner_for(content: bytes, name: str, runner: Path | None) -> Path | None:
    if runner is not None and looks_like_onnx(content) and not has_onnxruntime(runner):
        _logger.info("%s is not compared in C++: %s has no onnxruntime", name, runner)
        return None
    return runner


def _in_python(artifact: Artifact, comparer: Comparer, more_batches: Sequence[int]) -> list[Comparison]:
    """Compare in all batch sizes, and at further thresholds in one."""
    reference, metadata = comparer.reference, artifact.metadata
    if "loss" in metadata.methods:
        comparer.require_loss(artifact.loss(reference.predictions, reference.targets))
    score, iou = reference.thresholds
    batches = {reference.thresholds: [*reference.batches, *more_batches], (score, iou / 2): [_OTHER_BATCH]}
    batches.setdefault((metadata.score_threshold, metadata.iou_threshold), [_OTHER_BATCH])
    comparisons = []
    for thresholds, sizes in batches.items():

        def detect(images: Tensor, thresholds: tuple[float, float] = thresholds) -> Answer:
            return artifact.detect_named(images, *thresholds)

        comparisons += comparer.compare_detect(detect, thresholds, sizes)
    return comparisons


def _in_cpp(trial: RunnerTrial, metadata: ArtifactMetadata, comparer: Comparer) -> list[Comparison]:
    reference = comparer.reference
    if "loss" in metadata.methods:
        comparer.require_loss(trial.loss(reference.predictions, reference.targets))
    expected, thresholds = reference.found_in_photographs(), reference.thresholds
    return [
        comparer.compare(
            expected, trial.detect(thresholds, batch, metadata.classes, reference.slots), thresholds, batch
        )
        for batch in reference.batches
    ]
