"""Detect in PyTorch, as the reference for exported files, and compute the tolerances of the comparison."""

import copy
import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from lensbox.common.canvas import Canvas
from lensbox.export.detector.graph import example_canvases
from lensbox.export.detector.wrapper import DetectorWrapper
from lensbox.export.verify.pictures import drawn_pictures
from lensbox.model import Detector
from lensbox.model.protocol_check import answer_of
from lensbox.ops.canvas import fit_to_canvases
from lensbox.runtime.detect.detection_sets import Difference, Found, Limits, found_in
from lensbox.runtime.detect.self_test import outputs_in_picture
from lensbox.runtime.file.self_test import IOU_TOLERANCES
from lensbox.runtime.file.self_test import TOLERANCES as SELF_TEST

_logger = logging.getLogger(__name__)

BATCHES = (1, 2, 7, 32)

_NOISE_CANVASES = 3
_ROUNDING = 1e-6
# Compare fewer canvases if one canvas takes more operations: about half a second on one core. A count of
# operations, unlike a clock, gives the same comparison on every machine.
_MOST_OPERATIONS = 2e10
_FEW = 7


class Allowance(NamedTuple):
    """Differences explained by rounding, against the detector in PyTorch on the CPU in float32.

    boxes: canvas pixels. relative: additional part of a coordinate, as sides are exponentials up to 4,700 px.
    scores, iou: absolute. values: part of the largest value of an output; infinite: not compared. loss: part
    of the loss. exchanged: share of detections that may appear or vanish, because scores or overlaps are
    within the tolerance of a threshold or of each other.
    """

    boxes: float
    relative: float
    scores: float
    iou: float
    values: float
    loss: float
    exchanged: float

    def limits(self, found: Found) -> Limits:
        """Return the limits for one picture. found: the detector's detections in the picture."""
        extras = {
            name: self.values * float(value.double().nan_to_num(0, 0, 0).abs().max())
            if value.numel()
            else 0.0
            for name, value in found.extras.items()
        }
        return Limits(self.boxes, self.scores, self.iou, extras, self.relative)


# For float32, by device.
TOLERANCES = {
    "cpu": Allowance(0.01, 1e-4, SELF_TEST.cpu.scores, IOU_TOLERANCES["cpu"], 1e-3, 1e-5, 0.01),
    "cuda": Allowance(0.05, 1e-4, SELF_TEST.cuda.scores, IOU_TOLERANCES["cuda"], 2e-2, 1e-5, 0.01),
}


def tolerance_of(dtype: str, device: str, boxes: float) -> Allowance:
    """Return the tolerance for a file. boxes: the value of `--tolerance`, for reduced precision."""
    if dtype == "float32":
        return TOLERANCES[device]
    return Allowance(boxes, 0, SELF_TEST.cuda.scores, 0.1, math.inf, 1e-5, 0.05)


class Reference:
    """The answers of a detector on the CPU, in float32, in eval mode, one canvas at a time.

    canvases: uint8 [N, c, h, w]: the user's pictures, drawn pictures and noise. pictures: number of pictures
    at the beginning of `canvases`. slots: K, None if it varies. thresholds: the score and IoU thresholds of
    the first comparison.
    """

    def __init__(
        self,
        detector: Detector,
        thresholds: tuple[float, float],
        pictures: Sequence[Tensor] = (),
        batches: Sequence[int] = BATCHES,
    ) -> None:
        """Choose canvases and thresholds.

        pictures: uint8 [C, H, W], in addition to drawn pictures. batches: batch sizes to compare.
        """
        self.detector = detector
        self.batches = tuple(batches)
        canvases, self.pictures = comparison_canvases(detector, pictures)
        self.canvases = canvases
        with _Operations() as counter:
            answer_of(detector, canvases[:1], *thresholds)
        operations = counter.count
        if operations > _MOST_OPERATIONS:
            _logger.info("one canvas takes %.0f billion operations: comparing fewer", operations / 1e9)
            self.canvases = canvases[: len(pictures) + _FEW]
            self.pictures = min(self.pictures, len(self.canvases))
            self.batches = tuple(size for size in self.batches if size <= _FEW)
        self._found: dict[tuple[float, float], list[Found]] = {}
        self.slots: int | None = None
        self.thresholds = thresholds
        if not any(len(found.scores) for found in self.found(thresholds)):
            _logger.warning(
                "nothing is found in %d pictures at a score threshold of %g: comparing at a threshold of 0; "
                "give photographs with objects: --pictures FILE",
                self.pictures,
                thresholds[0],
            )
            self.thresholds = (0.0, thresholds[1])
        _warn_of_other_boxes(torch.cat([found.boxes for found in self.found(self.thresholds)]))
        generator = torch.Generator().manual_seed(0)
        corners = 400 * torch.rand(2, 64, 2, 2, generator=generator)
        self.predictions, self.targets = torch.cat([corners.amin(dim=2), corners.amax(dim=2)], dim=-1)
        own = getattr(detector, "loss", torch.ops.lensbox.masked_giou_loss)
        with torch.no_grad():
            self.loss = float(own(self.predictions, self.targets))

    def found(self, thresholds: tuple[float, float]) -> list[Found]:
        """Return the detections in each canvas at the given thresholds."""
        if thresholds not in self._found:
            with one_thread():
                answers = [answer_of(self.detector, canvas[None], *thresholds) for canvas in self.canvases]
            slots = {answer["scores"].shape[1] for answer in answers}
            self.slots = slots.pop() if len(slots) == 1 else None
            self._found[thresholds] = [found_in(answer, self.slots) for answer in answers]
        return self._found[thresholds]

    def found_in_photographs(self) -> list[Found]:
        """Return the detections in the canvases as photographs, with preprocess and restore."""
        module, points = DetectorWrapper(self.detector), self.detector.specification.points
        with torch.no_grad(), one_thread():
            return [
                found_in(outputs_in_picture(module, photograph, self.thresholds, points), self.slots)
                for photograph in self.canvases
            ]

    def unstable_share(self, thresholds: tuple[float, float]) -> float:
        """Return the share of detections that appear or vanish by float32 rounding at the given thresholds.

        The detector is compared with a copy whose weights, and scores of 1, differ by rounding. The share
        is large if scores tie, as in an untrained network or of large logits.
        """
        noisy = copy.deepcopy(cast(nn.Module, self.detector))
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for weight in noisy.parameters():
                if weight.is_floating_point():
                    weight.mul_(1 + _ROUNDING * torch.randn(weight.shape, generator=generator))
        change = Difference()
        with one_thread(), _SaturatedScores(generator):
            for canvas, expected in zip(self.canvases, self.found(thresholds), strict=True):
                actual = found_in(answer_of(noisy, canvas[None], *thresholds), self.slots)
                change.add(expected, actual, thresholds, TOLERANCES["cpu"].limits(expected), "")
        return change.others / max(change.expected, 1)


class _Dispatch:
    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.call(function, args, kwargs or {})

    def call(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Return the result of an operator."""
        raise NotImplementedError


class CallMode(_Dispatch, TorchDispatchMode):
    """A mode that calls `call` in place of each operator.

    `__torch_dispatch__` is inherited: the first call of a mode's own one imports torch's compiler, which
    takes a second, and four in a new environment.
    """


class _Operations(CallMode):
    """Count the floating-point operations of products and convolutions."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def call(self, function: Any, args: Any, kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if count := flop_registry.get(function.overloadpacket):
            self.count += count(*args, **kwargs, out_val=result)
        return result


class _SaturatedScores(TorchFunctionMode):
    """Round scores of large logits, which are all 1, to 1 or the numbers below it, as other runtimes do."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.generator = generator

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") in ("sigmoid", "softmax"):
            below = 1 - _ROUNDING * torch.rand(result.shape, generator=self.generator)
            result = torch.where(result == 1, below.to(result), result)
        return result


def _warn_of_other_boxes(boxes: Tensor) -> None:
    """Log a warning if boxes [n, 4] seem to be in 0..1, or to be centers and sizes."""
    if len(boxes) and float(boxes.abs().max()) <= 1:
        _logger.warning(
            "all boxes lie within one pixel of the canvas: boxes must be in pixels of the canvas, not in 0..1"
        )
    elif inverted := int((boxes[:, 2:] < boxes[:, :2]).any(dim=1).sum()):
        _logger.warning(
            "%d of %d boxes have x2 < x1 or y2 < y1: boxes must be x1, y1, x2, y2, not center and size",
            inverted,
            len(boxes),
        )


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread, so that sums do not depend on the number of cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def comparison_canvases(detector: Detector, pictures: Sequence[Tensor] = ()) -> tuple[Tensor, int]:
    """Return canvases, uint8 [N, c, h, w]: pictures, then noise; and the number of pictures."""
    specification = detector.specification
    shown = [*pictures, *drawn_pictures(specification)]
    fitted, _ = fit_to_canvases(shown, None, *Canvas.of(specification).as_tuple)
    return torch.cat([fitted, example_canvases(detector, _NOISE_CANVASES)]), len(shown)
