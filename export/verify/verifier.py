"""Verify that a file finds the same as its detector in each runtime, on each device and in batches."""

import contextlib
import json
import logging
import math
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from lensbox.common.errors import ArtifactError
from lensbox.common.files import temporary_folder
from lensbox.export.options import ExportOptions
from lensbox.export.verify.reference import Allowance, Reference, one_thread, tolerance_of
from lensbox.model.protocol_check import Answer
from lensbox.ops import library_path
from lensbox.runtime.detect.artifact import Artifact
from lensbox.runtime.detect.detection_sets import Difference, Found, found_in, found_of_json
from lensbox.runtime.file.archive import looks_like_onnx
from lensbox.runtime.file.metadata import ArtifactMetadata
from lensbox.runtime.formats.detect_only import Run
from lensbox.runtime.loading import load_artifact_bytes

_logger = logging.getLogger(__name__)

_OTHER_BATCH = 7  # batch size for further thresholds
# Some versions of AOTInductor moved boxes without an error, for some layouts and sizes.
_COMPILED_BATCH = 256
# If scores tie, rounding alone exchanges detections; a file may exchange this many times as many. A file with
# nothing in common exchanges 2 for each detection: one is lost, and one is new.
_UNSTABLE_FACTOR = 1.5
_MOST_UNSTABLE = 1.8
_TIMEOUT = 600  # seconds of a run of the runner


@dataclass(frozen=True)
class Comparer:
    """Compares detections with the detector's. where: names file, runtime and device in messages."""

    reference: Reference
    tolerance: Allowance
    where: str

    def compare_detect(self, detect: Run, thresholds: tuple[float, float], batches: Sequence[int]) -> None:
        """Compare a model in batches. detect: takes canvases on the CPU. Raises as `compare` does."""
        for batch in batches:
            found = found_in_batches(detect, self.reference, thresholds, batch)
            self.compare(self.reference.found(thresholds), found, thresholds, batch)

    def compare(
        self, expected: Sequence[Found], found: Sequence[Found], thresholds: tuple[float, float], batch: int
    ) -> None:
        """Log the differences. Raises ArtifactError for differences beyond the tolerance."""
        difference, limits = self.difference(expected, found, thresholds), self.tolerance
        if faults := self.faults(difference, thresholds):
            raise ArtifactError(
                f"{self.where} does not find what the detector finds, in batches of {batch} at thresholds of "
                f"{thresholds[0]:g} and {thresholds[1]:g}: {'; '.join(faults)}"
            )
        _logger.info(
            "%s in batches of %d: %d detections in %d pictures, boxes within %.2g px (at most %g), "
            "scores within %.2g (at most %g), %d come or go",
            *(self.where, batch, difference.expected, len(found)),
            *(max(difference.boxes, default=0.0), limits.boxes, difference.scores, limits.scores),
            difference.others,
        )

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


def found_in_batches(
    detect: Run, reference: Reference, thresholds: tuple[float, float], batch: int
) -> list[Found]:
    """Return the detections in the canvases of a reference, which a large batch holds repeatedly."""
    expected = reference.found(thresholds)
    repeats = -(-batch // len(reference.canvases))
    canvases = reference.canvases.repeat(repeats, 1, 1, 1)[: max(batch, len(expected))]
    answers = [detect(part, *thresholds) for part in canvases.split(batch)]
    return [
        found_in(answer, reference.slots, index)
        for answer in answers
        for index in range(len(answer["counts"]))
    ]


def verify(
    content: bytes,
    name: str,
    metadata: ArtifactMetadata,
    reference: Reference,
    options: ExportOptions,
    *,
    devices: Sequence[str] = ("cpu",),
) -> None:
    """Load a file, run its self-test and compare it with its detector.

    name: the file's name in errors. devices: to compare on. Raises ArtifactError if the detections differ.
    """
    dtype = metadata.precision.dtype if metadata.precision else "float32"
    runner = _runner_for(content, name, options.runner)
    with one_thread():
        for device in devices:
            tolerance = tolerance_of(dtype, device, options.tolerance)
            artifact = load_artifact_bytes(content, name, device)
            with running(name, device):
                report = artifact.self_test()
            if not report.passed:
                raise ArtifactError(f"{name} fails its self-test: {'; '.join(report.failures)}")
            _require_dtypes(artifact.detect_named(reference.canvases[:1]), metadata, name)
            comparer = Comparer(reference, tolerance, f"{name} with Python on {device}")
            _in_python(artifact, comparer)
            if runner is not None:
                comparer = Comparer(reference, tolerance, f"{name} with C++ on {device}")
                _in_cpp(runner, content, device, options.ops, metadata, comparer)


@contextlib.contextmanager
def running(name: str, device: str) -> Iterator[None]:
    """Turn errors of a file's code into ArtifactError, with their reason. name: the file's name."""
    try:
        yield
    except ArtifactError:
        raise
    except (RuntimeError, ValueError) as error:
        reason = str(error).split("\nException raised from")[0].strip()  # without torch's C++ stack
        if "TorchScript interpreter" in reason:  # a traceback of serialized code; the last line is the reason
            reason = reason.splitlines()[-1]
        raise ArtifactError(f"{name} cannot be run on {device}: {reason}") from error


def _require_dtypes(answer: Answer, metadata: ArtifactMetadata, name: str) -> None:
    dtypes = {output: str(value.dtype).removeprefix("torch.") for output, value in answer.items()}
    wanted = {output: metadata.output[output]["dtype"] for output in metadata.outputs}
    if dtypes != wanted:
        raise ArtifactError(f"{name} must have outputs of the dtypes {wanted}, got {dtypes}")


def _runner_for(content: bytes, name: str, runner: Path | None) -> Path | None:
    if runner is None:
        return None
    runner = runner.absolute()  # a bare name would be searched in PATH
    if looks_like_onnx(content) and ", onnxruntime " not in _output_of(runner, "--version"):
        _logger.info("%s is not compared in C++: %s has no onnxruntime", name, runner)
        return None
    return runner


def _in_python(artifact: Artifact, comparer: Comparer) -> None:
    """Compare in all batch sizes, and at further thresholds in one."""
    reference, metadata = comparer.reference, artifact.metadata
    if "loss" in metadata.methods:
        comparer.require_loss(artifact.loss(reference.predictions, reference.targets))
    score, iou = reference.thresholds
    sizes = [*reference.batches, *([_COMPILED_BATCH] if metadata.compiled else [])]
    batches = {reference.thresholds: sizes, (score, iou / 2): [_OTHER_BATCH]}
    batches.setdefault(metadata.thresholds, [_OTHER_BATCH])
    for thresholds, sizes in batches.items():
        comparer.compare_detect(artifact.detect_named, thresholds, sizes)


def _in_cpp(
    runner: Path,
    content: bytes,
    device: str,
    ops: Sequence[Path],
    metadata: ArtifactMetadata,
    comparer: Comparer,
) -> None:
    """Compare the answers of `lensbox_runner`, for which the canvases are photographs.

    ops: op libraries in addition to Lensbox's.
    """
    reference = comparer.reference
    with temporary_folder() as folder:
        (folder / "artifact").write_bytes(content)
        common = ["--artifact", folder / "artifact", "--device", device]
        for library in (library_path(), *ops):
            common += ["--ops", library.absolute()]

        def answer(command: str, *options: object) -> Any:
            return json.loads(_output_of(runner, command, *common, *options))

        if "loss" in metadata.methods:
            options: list[object] = []
            for name in ("predictions", "targets"):
                options += [f"--{name}", folder / f"{name}.json"]
                (folder / f"{name}.json").write_text(json.dumps(getattr(reference, name).tolist()))
            comparer.require_loss(float(answer("loss", *options)["loss"]))
        images = [folder / f"{index:04}.png" for index in range(len(reference.canvases))]
        for image, canvas in zip(images, reference.canvases, strict=True):
            pixels = canvas[0] if len(canvas) == 1 else canvas.permute(1, 2, 0)
            Image.fromarray(pixels.contiguous().numpy()).save(image, compress_level=1)
        expected, thresholds = reference.found_in_photographs(), reference.thresholds
        for batch in reference.batches:
            score, iou = ("--score-threshold", thresholds[0]), ("--iou-threshold", thresholds[1])
            answers = answer("detect", *score, *iou, "--batch", batch, "--image", *images)["images"]
            found = [
                found_of_json(image["detections"], metadata.classes, reference.slots) for image in answers
            ]
            comparer.compare(expected, found, thresholds, batch)


def _output_of(runner: Path, command: str, *options: object) -> str:
    """Run the runner and return its output. Raises ArtifactError if it fails."""
    line = [str(runner), command, *map(str, options)]
    try:
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ArtifactError(f"the file cannot be compared with {runner}: {error}") from error
    if done.returncode != 0:
        reason = done.stderr.strip() or f"exit code {done.returncode}"
        raise ArtifactError(f"{runner} {command} failed: {reason}")
    return done.stdout
