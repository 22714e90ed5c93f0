"""How near an exported file comes to its detector with each runtime, on each device and in batches, and how
long it takes; a file that strays is not written."""

import copy
import logging
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from lensbox.artifact.archive import looks_like_onnx
from lensbox.artifact.metadata import ArtifactMetadata, Parity
from lensbox.artifact.self_test import TOLERANCES
from lensbox.common.errors import ArtifactError
from lensbox.export.parity_runner import RunnerTrial, has_onnxruntime
from lensbox.export.precision_change import Found, PrecisionChange, found_in
from lensbox.export.proof_canvases import BATCHES, fit_pictures, proof_canvases
from lensbox.export.self_test_builder import VALUE_TOLERANCES, one_thread
from lensbox.export.wrapper import deployed
from lensbox.model import Detector
from lensbox.model.protocol_check import named, slots_of
from lensbox.runtime.artifact import Artifact
from lensbox.runtime.loading import load_artifact_bytes

_logger = logging.getLogger(__name__)

# Of two boxes whose scores differ by less than rounding does, either may suppress the other.
_MOST_EXCHANGED = 0.01
_BOXES = 0.05  # pixels of the canvas that float32 may move a box, on any device
_LOSS = 1e-5
_SECONDS = 0.1  # for timing one batch size, and at least one call after the first

Detect = Callable[[Tensor, float, float], Mapping[str, Tensor]]


@dataclass(frozen=True)
class ParityOptions:
    """Where the files of an export are compared.

    devices: "cpu", "cuda" or both. runner: the program `lensbox_runner`, None to leave out C++. ops: op
    libraries of the detector's own, for the runner. pictures: uint8 [C, H, W], beside drawn ones and noise.
    tolerance: the largest change of a box in another precision than float32, in canvas pixels.
    """

    devices: tuple[str, ...] = ("cpu",)
    runner: Path | None = None
    ops: Sequence[Path] = ()
    pictures: Sequence[Tensor] = ()
    tolerance: float = 2.0
    batches: tuple[int, ...] = BATCHES


class Reference:
    """What the detector finds, in PyTorch, on the CPU, in float32 and one canvas at a time.

    canvases: uint8 [N, c, h, w]. found: as many. slots: the most that can be found in one, None for any
    number. milliseconds: of a batch, by its size.
    """

    def __init__(self, detector: Detector, thresholds: tuple[float, float], options: ParityOptions) -> None:
        self.thresholds = thresholds
        self.options = options
        self._detector = detector
        self.canvases = proof_canvases(detector, options.pictures, max(options.batches))
        with one_thread():
            answers = [self._detect(canvas[None], *self.thresholds) for canvas in self.canvases]
            self.slots = slots_of(answers)
            self.found = [found_in(answer, self.slots) for answer in answers]
            self.milliseconds = {batch: self.time(self._detect, batch) for batch in options.batches}
        generator = torch.Generator().manual_seed(0)
        corners = 400 * torch.rand(2, 64, 2, 2, generator=generator)
        self.predictions, self.targets = torch.cat([corners.amin(dim=2), corners.amax(dim=2)], dim=-1)
        own = getattr(detector, "loss", torch.ops.lensbox.masked_giou_loss)
        with torch.no_grad():
            self.loss = float(own(self.predictions, self.targets))

    def with_picture(self, picture: Tensor) -> "Reference":
        """The same with one more picture, uint8 [C, H, W], in front."""
        canvases = fit_pictures(self._detector, [picture])
        more = copy.copy(self)
        with one_thread():
            more.found = [found_in(self._detect(canvases, *self.thresholds), self.slots), *self.found]
        more.canvases = torch.cat([canvases, self.canvases])
        return more

    def found_in_photographs(self) -> list[Found]:
        """What there is in the canvases as photographs: fitted and restored as the detector does, which clips
        boxes."""
        module: Any = deployed(self._detector)
        found = []
        with torch.no_grad(), one_thread():
            for photograph in self.canvases:
                canvases, geometry = module.preprocess([photograph], None)
                answer = self._detect(canvases, *self.thresholds)
                restored = {**answer, "boxes": module.restore(answer["boxes"], geometry)}
                for name in self._detector.specification.points:
                    restored[name] = module.restore_points(answer[name], geometry)
                found.append(found_in(restored, self.slots))
        return found

    def _detect(self, canvases: Tensor, score: float, iou: float) -> Mapping[str, Tensor]:
        with torch.no_grad():
            return named(self._detector.detect(canvases, score, iou))

    def time(self, detect: Detect, batch: int) -> float:
        """Milliseconds of a batch, the median of some calls after one."""
        calls: list[float] = []
        canvases, begin = self.canvases[:batch], time.perf_counter()
        while len(calls) < 2 or time.perf_counter() - begin < _SECONDS:
            start = time.perf_counter()
            detect(canvases, *self.thresholds)["counts"].cpu()  # waits for the device
            calls.append(time.perf_counter() - start)
        return statistics.median(calls[1:]) * 1e3


class Answers(NamedTuple):
    """What a runtime gave with one batch size, and in what time.

    found: by canvas, or photograph. expected: what the detector finds there. loss: None for a file without.
    """

    runtime: Literal["Python", "C++"]
    device: str
    batch: int
    found: Sequence[Found]
    expected: Sequence[Found]
    loss: float | None
    milliseconds: float


def compare_with_detector(
    content: bytes,
    name: str,
    metadata: ArtifactMetadata,
    reference: Reference,
    devices: Sequence[str] = ("cpu", "cuda"),
    runs_in_cpp: bool = True,
) -> tuple[Parity, ...]:
    """The rows of one file, which messages call `name`; its self-test's picture is compared, too.

    content: of the file. devices: on which it runs. runs_in_cpp: whether
    `lensbox_runner` takes it, of ONNX files at least if it has onnxruntime. Raises ArtifactError if it finds
    other things than the detector.
    """
    options, rows = reference.options, []
    reference = reference.with_picture(metadata.self_test.image)
    runner = options.runner if runs_in_cpp else None
    if runner is not None and looks_like_onnx(content) and not has_onnxruntime(runner):
        _logger.info("%s is not compared in C++: %s has no onnxruntime", name, runner)
        runner = None
    with one_thread():
        for device in (device for device in options.devices if device in devices):
            artifact = load_artifact_bytes(content, name, device)
            for answers in _python_answers(artifact, reference):
                rows.append(_checked(answers, metadata, reference, name))
            if runner is None:
                continue
            ops = () if metadata.libraries else options.ops  # those that it carries are to be proven, too
            with RunnerTrial(runner, content, name, device, reference.canvases, ops) as trial:
                for answers in _runner_answers(trial, metadata, reference):
                    rows.append(_checked(answers, metadata, reference, name))
    return tuple(rows)


def _python_answers(artifact: Artifact, reference: Reference) -> Iterator[Answers]:
    loss = None
    if "loss" in artifact.metadata.methods:
        loss = artifact.loss(reference.predictions, reference.targets)
    for batch in reference.options.batches:
        found: list[Found] = []
        for first in range(0, len(reference.canvases), batch):
            answer = artifact.detect_named(reference.canvases[first : first + batch], *reference.thresholds)
            found += [found_in(answer, reference.slots, index) for index in range(len(answer["counts"]))]
        milliseconds = reference.time(artifact.detect_named, batch)
        device = artifact.device.type
        yield Answers("Python", device, batch, found, reference.found, loss, milliseconds)


def _runner_answers(
    trial: RunnerTrial, metadata: ArtifactMetadata, reference: Reference
) -> Iterator[Answers]:
    batches = reference.options.batches
    loss = None
    if "loss" in metadata.methods:
        loss = trial.loss(reference.predictions, reference.targets)
    milliseconds = trial.milliseconds(batches)
    expected = reference.found_in_photographs()
    for batch in batches:
        found = trial.detect(reference.thresholds, batch, metadata.classes, reference.slots)
        yield Answers("C++", trial.device, batch, found, expected, loss, milliseconds[batch])


def _checked(answers: Answers, metadata: ArtifactMetadata, reference: Reference, name: str) -> Parity:
    """How far the answers are from the detector's. Raises ArtifactError beyond what rounding explains."""
    change = PrecisionChange()
    limit = reference.options.tolerance if metadata.precision else _BOXES
    extras_limit = math.inf if metadata.precision else VALUE_TOLERANCES[answers.device]
    score_limit = TOLERANCES["cuda" if metadata.precision else answers.device].scores
    for expected, actual in zip(answers.expected, answers.found, strict=True):
        change.compare(expected, actual, reference.thresholds[0], score_limit)
    loss = None if answers.loss is None else _relative_difference(answers.loss, reference.loss)
    row = Parity(
        runtime=answers.runtime,
        device=answers.device,
        batch=answers.batch,
        detections=sum(len(expected.scores) for expected in answers.expected),
        boxes=max(change.boxes, default=0.0),
        scores=change.scores,
        exchanged=change.unmatched
        + sum(
            not (moved <= limit and apart <= extras_limit)
            for moved, apart in zip(change.boxes, change.extras, strict=True)
        ),
        loss=loss,
        milliseconds=answers.milliseconds,
    )
    apart = max(change.extras, default=0.0)
    faults = []
    if row.exchanged > _MOST_EXCHANGED * row.detections:
        faults.append(
            f"{row.exchanged} of {row.detections} detections are others, or moved by more than {limit:g} px "
            f"of the canvas (by up to {row.boxes:.3g})"
            + (
                f", or have other extras (by up to {apart:.3g} of the largest)"
                if not apart <= extras_limit
                else ""
            )
        )
    if not row.scores <= score_limit:
        faults.append(f"scores changed by up to {row.scores:.3g}, of which {score_limit:g} are allowed")
    if loss is not None and not loss <= _LOSS:
        faults.append(f"the loss changed by a part of {loss:.3g}, of which {_LOSS:g} are allowed")
    if faults:
        raise ArtifactError(
            f"{name} does not find what the detector finds, with {row.runtime} on {row.device} in batches of "
            f"{row.batch}: {'; '.join(faults)}"
        )
    return row


def _relative_difference(value: float, expected: float) -> float:
    """Where 0 is expected, as of a detector's own loss it may be, every other value is far off."""
    if value == expected:
        return 0.0
    return abs(value - expected) / abs(expected) if expected else math.inf
