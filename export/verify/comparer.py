"""Compare detections with those in PyTorch, up to rounding; say why no file can find the same."""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from lensbox.common.errors import ArtifactError, LensboxError
from lensbox.export.verify.reference import VALUES, Reference, one_thread, tolerance_of, with_extras
from lensbox.model.protocol_check import answer_of
from lensbox.runtime.detect.detection import Detections, detections_in
from lensbox.runtime.detect.self_test import Difference
from lensbox.runtime.file.self_test import Tolerance
from lensbox.runtime.formats.detect_only import Run

_logger = logging.getLogger(__name__)

# If scores tie, detections are unmatched by rounding alone; a file may have this many times as many. A file
# with nothing in common has 2 for each detection: one is lost, and one is new.
_UNSTABLE_FACTOR = 1.5
_MOST_UNSTABLE = 1.8

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_BATCH = 2
_MOST_NAMED = 3


@dataclass(frozen=True)
class Comparer:
    """Compares detections with the detector's in PyTorch.

    dtype: of the file. boxes: the value of `--tolerance`. where: names file, runtime and device in messages.
    """

    reference: Reference
    dtype: str
    device: str
    boxes: float
    where: str = ""
    compared: list[tuple[int, Difference, int]] = field(default_factory=list)  # batch, difference, pictures

    @property
    def tolerance(self) -> Tolerance:
        """Return the tolerance of boxes and scores; further outputs have their own."""
        return tolerance_of(self.dtype, self.device, self.boxes)

    def compare(
        self,
        expected: Sequence[Detections],
        found: Sequence[Detections],
        thresholds: tuple[float, float],
        batch: int,
    ) -> None:
        """Keep the differences for `report`. Raise ArtifactError for differences beyond the tolerance."""
        difference = self.difference(expected, found, thresholds)
        if faults := self.faults(difference, thresholds):
            raise ArtifactError(
                f"{self.where} does not find what the detector finds, in batches of {batch} at thresholds of "
                f"{thresholds[0]:g} and {thresholds[1]:g}: {'; '.join(faults)}"
            )
        self.compared.append((batch, difference, len(found)))
        _logger.debug(*self._described(f"{batch}", [difference], len(found)))

    def report(self) -> None:
        """Log all comparisons as one line."""
        sizes = sorted({batch for batch, _, _ in self.compared})
        differences = [difference for _, difference, _ in self.compared]
        listed = " and ".join(filter(None, [", ".join(map(str, sizes[:-1])), str(sizes[-1])]))
        _logger.info(*self._described(listed, differences, self.compared[0][2]))

    def _described(self, batches: str, differences: Sequence[Difference], pictures: int) -> tuple[Any, ...]:
        """Return the arguments of a log record: the most detections, and the largest differences."""
        limits = self.tolerance
        return (
            "%s in batches of %s: %d detections in %d pictures, boxes within %.2g px (at most %g), "
            "scores within %.2g (at most %g), %d unmatched by rounding",
            *(self.where, batches, max(one.expected for one in differences), pictures),
            *(max((box for one in differences for box in one.boxes), default=0.0), limits.boxes),
            *(max(one.scores for one in differences), limits.scores),
            max(one.unmatched for one in differences),
        )

    def difference(
        self, expected: Sequence[Detections], actual: Sequence[Detections], thresholds: tuple[float, float]
    ) -> Difference:
        """Compare the detections of all canvases; `expected` is repeated if it is shorter."""
        difference, tolerance = Difference(), self.tolerance
        for index, found in enumerate(actual):
            wanted = expected[index % len(expected)]
            if self.dtype == "float32":  # further outputs in a reduced precision are not compared
                tolerance = with_extras(tolerance, VALUES[self.device], wanted)
            difference.add(wanted, found, thresholds, tolerance, f"canvas {index}", self.reference.slots)
        return difference

    def faults(self, difference: Difference, thresholds: tuple[float, float]) -> list[str]:
        """Return a sentence for each difference beyond rounding. thresholds: of the comparison."""
        tolerance = self.tolerance
        if not difference.unexplained and difference.by_rounding <= tolerance.unmatched * difference.expected:
            return []
        share = self.reference.unstable_share(thresholds)
        allowed = min(_UNSTABLE_FACTOR * share, _MOST_UNSTABLE) * difference.expected
        if share > tolerance.unmatched and difference.unmatched <= allowed:
            _logger.info(
                "%d of %d detections differ because scores tie and rounding decides",
                difference.unmatched,
                difference.expected,
            )
            return []
        return [
            f"{difference.unmatched} of {difference.expected} detections are missing, new, or moved by more "
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
) -> list[Detections]:
    """Return the detections in the canvases of a reference, which a large batch holds repeatedly."""
    expected = reference.found(thresholds)
    repeats = -(-batch // len(reference.canvases))
    canvases = reference.canvases.repeat(repeats, 1, 1, 1)[: max(batch, len(expected))]
    answers = [detect(part, *thresholds) for part in canvases.split(batch)]
    return [detections_in(answer, index) for answer in answers for index in range(len(answer["counts"]))]


def instability(reference: Reference) -> str | None:
    """Return a sentence if the detector in PyTorch does not find the same in an image each time; else None.

    The detector is compared with itself, in batches of 1 and 2.
    """
    detector, thresholds = reference.detector, reference.thresholds
    comparer = Comparer(reference, "float32", "cpu", 0.0)

    def differs(batch: int) -> bool:
        with one_thread():
            found = found_in_batches(lambda *call: answer_of(detector, *call), reference, thresholds, batch)
        difference = comparer.difference(reference.found(thresholds), found, thresholds)
        if batch == 1:  # the same computation: nothing rounds in another way
            return bool(difference.unmatched)
        return bool(comparer.faults(difference, thresholds))

    try:
        if differs(1):
            return (
                "detect does not find the same in the same images each time: remove random numbers, such as "
                "dropout that is active in eval mode, and state that a call leaves behind"
            )
        if not differs(_BATCH):
            return None
    except (LensboxError, RuntimeError, ValueError):  # no batch of 2, which other messages explain
        return None
    said = "what detect finds in an image depends on the other images of the batch"
    norms = [
        name
        for name, part in detector.named_modules()  # type: ignore[attr-defined]
        if isinstance(part, _BATCH_NORMS) and (part.training or part.running_mean is None)
    ]
    if norms:
        names = ", ".join(norms[:_MOST_NAMED]) + (" and others" if len(norms) > _MOST_NAMED else "")
        said += (
            f", as batch norms have no running statistics: {names}. Train them with track_running_stats=True"
        )
    else:
        said += ". Compute each image by itself, without sums or maxima over the batch"
    return f"{said}, or export with --batch 1, with which every runtime gives the network single images"
