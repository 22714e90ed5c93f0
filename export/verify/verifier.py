"""Verify that a file finds the same as its detector in each runtime, on each device and in batches."""

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from torch import Tensor

from lensbox.artifact.archive import looks_like_onnx
from lensbox.artifact.metadata import ArtifactMetadata, Parity
from lensbox.common.errors import ArtifactError
from lensbox.export.verify.reference import Reference, answers_of, one_thread
from lensbox.export.verify.runner import RunnerTrial, has_onnxruntime
from lensbox.export.verify.tolerances import Tolerance, tolerance_of
from lensbox.model.protocol_check import Answer
from lensbox.runtime.artifact import Artifact
from lensbox.runtime.detection_sets import Difference, Found, found_in
from lensbox.runtime.loading import load_artifact_bytes

_logger = logging.getLogger(__name__)

_OTHER_BATCH = 7  # batch size for further thresholds
# If scores tie, rounding alone exchanges detections; a file may exchange this many times as many. A file with
# nothing in common exchanges 2 for each detection: one is lost, and one is new.
_UNSTABLE_FACTOR = 1.5
_MOST_UNSTABLE = 1.8


@dataclass(frozen=True)
class Runtimes:
    """The runtimes and devices on which exported files are compared.

    devices: "cpu", "cuda" or both. runner: the program `lensbox_runner`; None to leave out C++. ops: the
    detector's op libraries, for the runner. boxes: largest change of a box by reduced precision, in canvas
    pixels. timed: whether the metadata get a row for each comparison.
    """

    devices: tuple[str, ...] = ("cpu",)
    runner: Path | None = None
    ops: Sequence[Path] = ()
    boxes: float = 2.0
    timed: bool = False


class _Run(NamedTuple):
    """The answers of a runtime for one batch size; see `Parity`."""

    runtime: Literal["Python", "C++"]
    device: str
    batch: int
    found: Sequence[Found]
    expected: Sequence[Found]
    loss: float | None
    milliseconds: float


def verify(
    content: bytes,
    name: str,
    metadata: ArtifactMetadata,
    reference: Reference,
    runtimes: Runtimes,
    *,
    devices: Sequence[str] = ("cpu", "cuda"),
    more_batches: Sequence[int] = (),
) -> tuple[Parity, ...]:
    """Load a file, run its self-test and compare it with its detector; return rows for the metadata.

    name: the file's name in errors. devices: usable devices of the format. more_batches: batch sizes to
    compare in Python, in addition to the reference's. Raises ArtifactError if the detections differ.
    """
    rows = []
    dtype = metadata.precision.dtype if metadata.precision else "float32"
    runner = _runner_for(content, name, runtimes)
    with one_thread():
        for device in (device for device in runtimes.devices if device in devices):
            tolerance = tolerance_of(dtype, device, runtimes.boxes)
            artifact = load_artifact_bytes(content, name, device)
            report = artifact.self_test()
            if not report.passed:
                raise ArtifactError(f"{name} fails its self-test: {'; '.join(report.failures)}")
            require_dtypes(artifact.detect_named(reference.canvases[:1]), metadata, name)
            for run in _python_runs(artifact, reference, runtimes.timed):
                rows.append(_row(run, reference, tolerance, name))
            _verify_further(artifact, reference, tolerance, name, more_batches)
            if runner is None:
                continue
            with RunnerTrial(runner, content, name, device, reference.canvases, runtimes.ops) as trial:
                for run in _runner_runs(trial, metadata, reference):
                    rows.append(_row(run, reference, tolerance, name))
    return tuple(rows) if runtimes.timed else ()


def verify_fixed(
    detect: Callable[[Tensor], Answer],
    reference: Reference,
    thresholds: tuple[float, float],
    tolerance: Tolerance,
    name: str,
) -> None:
    """Compare a model with fixed thresholds with its detector in all batch sizes.

    detect: takes canvases uint8 [B, c, h, w]; returns outputs by name. name: the model's name in errors.
    Raises ArtifactError if the detections differ.
    """
    with one_thread():
        for batch in reference.batches:
            _verify_batch(detect, reference, thresholds, batch, tolerance, name)


def require_dtypes(answer: Answer, metadata: ArtifactMetadata, name: str) -> None:
    """Raise ArtifactError unless the outputs have the dtypes of the metadata."""
    dtypes = {output: str(value.dtype).removeprefix("torch.") for output, value in answer.items()}
    wanted = {output: metadata.output[output]["dtype"] for output in metadata.outputs}
    if dtypes != wanted:
        raise ArtifactError(f"{name} must have outputs of the dtypes {wanted}, got {dtypes}")


def compare(
    expected: Sequence[Found], actual: Sequence[Found], thresholds: tuple[float, float], tolerance: Tolerance
) -> Difference:
    """Compare the detections of all canvases; `expected` is repeated if it is shorter."""
    difference = Difference()
    for index, found in enumerate(actual):
        wanted = expected[index % len(expected)]
        difference.add(wanted, found, thresholds, tolerance.limits(wanted), f"canvas {index}")
    return difference


def faults_of(difference: Difference, tolerance: Tolerance, reference: Reference) -> list[str]:
    """Return a sentence for each difference beyond rounding."""
    if not difference.unexplained and difference.exchanged <= tolerance.exchanged * difference.expected:
        return []
    share = reference.unstable_share
    allowed = min(_UNSTABLE_FACTOR * share, _MOST_UNSTABLE) * difference.expected
    if share > tolerance.exchanged and difference.others <= allowed:
        _logger.info(
            "%d of %d detections differ because scores tie and rounding decides",
            difference.others,
            difference.expected,
        )
        return []
    return [
        f"{difference.others} of {difference.expected} detections are missing, new, or moved by more than "
        f"{tolerance.boxes:g} px of the canvas (by up to {difference.moved:.3g}) or {tolerance.scores:g} of "
        f"the score (by up to {difference.score_moved:.3g})",
        *difference.unexplained[:3],
    ]


def _runner_for(content: bytes, name: str, runtimes: Runtimes) -> Path | None:
    if runtimes.runner is not None and looks_like_onnx(content) and not has_onnxruntime(runtimes.runner):
        _logger.info("%s is not compared in C++: %s has no onnxruntime", name, runtimes.runner)
        return None
    return runtimes.runner


def _python_runs(artifact: Artifact, reference: Reference, timed: bool) -> Iterator[_Run]:
    loss = None
    if "loss" in artifact.metadata.methods:
        loss = artifact.loss(reference.predictions, reference.targets)
    expected = reference.found(reference.thresholds)
    for batch in reference.batches:
        found = _found(lambda images: artifact.detect_named(images, *reference.thresholds), reference, batch)
        milliseconds = reference.time(artifact.detect_named, batch) if timed else 0.0
        yield _Run("Python", artifact.device.type, batch, found, expected, loss, milliseconds)


def _runner_runs(trial: RunnerTrial, metadata: ArtifactMetadata, reference: Reference) -> Iterator[_Run]:
    loss = None
    if "loss" in metadata.methods:
        loss = trial.loss(reference.predictions, reference.targets)
    milliseconds = trial.milliseconds(reference.batches)
    expected = reference.found_in_photographs()
    for batch in reference.batches:
        found = trial.detect(reference.thresholds, batch, metadata.classes, reference.slots)
        yield _Run("C++", trial.device, batch, found, expected, loss, milliseconds[batch])


def _verify_further(
    artifact: Artifact, reference: Reference, tolerance: Tolerance, name: str, batches: Iterable[int]
) -> None:
    """Compare in Python at further thresholds and batch sizes."""
    score, iou = reference.thresholds
    defaults = artifact.metadata.score_threshold, artifact.metadata.iou_threshold
    further = [(reference.thresholds, batch) for batch in batches]
    further += [((score, iou / 2), _OTHER_BATCH)]
    further += [(defaults, _OTHER_BATCH)] if defaults != reference.thresholds else []
    where = f"{name} with Python on {artifact.device.type}"
    for thresholds, batch in further:

        def detect(images: Tensor, thresholds: tuple[float, float] = thresholds) -> Answer:
            return artifact.detect_named(images, *thresholds)

        _verify_batch(detect, reference, thresholds, batch, tolerance, where)


def _verify_batch(
    detect: Callable[[Tensor], Answer],
    reference: Reference,
    thresholds: tuple[float, float],
    batch: int,
    tolerance: Tolerance,
    where: str,
) -> None:
    difference = compare(reference.found(thresholds), _found(detect, reference, batch), thresholds, tolerance)
    if faults := faults_of(difference, tolerance, reference):
        raise ArtifactError(
            f"{where} does not find what the detector finds, in batches of {batch} at thresholds of "
            f"{thresholds[0]:g} and {thresholds[1]:g}: {'; '.join(faults)}"
        )


def _found(detect: Callable[[Tensor], Answer], reference: Reference, batch: int) -> list[Found]:
    return [
        found_in(answer, reference.slots, index)
        for answer in answers_of(detect, reference.canvases, batch)
        for index in range(len(answer["counts"]))
    ]


def _row(run: _Run, reference: Reference, tolerance: Tolerance, name: str) -> Parity:
    """Return the row of a run for the metadata. Raises ArtifactError beyond the tolerance."""
    difference = compare(run.expected, run.found, reference.thresholds, tolerance)
    faults = faults_of(difference, tolerance, reference)
    loss = None if run.loss is None else _relative_difference(run.loss, reference.loss)
    if loss is not None and not loss <= tolerance.loss:
        faults.append(f"the relative change of the loss is {loss:.3g}, at most {tolerance.loss:g} is allowed")
    if faults:
        raise ArtifactError(
            f"{name} does not find what the detector finds, with {run.runtime} on {run.device} in batches of "
            f"{run.batch}: {'; '.join(faults)}"
        )
    return Parity(
        runtime=run.runtime,
        device=run.device,
        batch=run.batch,
        detections=difference.expected,
        boxes=max(difference.boxes, default=0.0),
        scores=difference.scores,
        exchanged=difference.others,
        loss=loss,
        milliseconds=run.milliseconds,
    )


def _relative_difference(value: float, expected: float) -> float:
    """Return the difference divided by the expected value; infinite for an expected 0."""
    if value == expected:
        return 0.0
    return abs(value - expected) / abs(expected) if expected else math.inf
