"""Detect in PyTorch, as the reference for exported files, and compute the tolerances of the comparison."""

import copy
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from lensbox.export.detector.graph import FunctionMode, example_canvases
from lensbox.export.detector.wrapper import DetectorWrapper
from lensbox.export.verify.pictures import Fitted, drawn, fitted
from lensbox.model import Detector
from lensbox.model.protocol_check import answer_of
from lensbox.runtime.detect.detection import Detections, detections_in
from lensbox.runtime.detect.self_test import Difference, outputs_in_picture
from lensbox.runtime.file.self_test import TOLERANCES as SELF_TEST
from lensbox.runtime.file.self_test import Tolerance

_logger = logging.getLogger(__name__)

BATCHES = (1, 2, 7, 32)

_NOISE_CANVASES = 3
_ROUNDING = 1e-6
# Compare fewer canvases if one canvas takes more operations: about half a second on one core. A count of
# operations, unlike a clock, gives the same comparison on every machine.
_MOST_OPERATIONS = 2e10
_FEW = 7


# The tolerances of a file in float32, against the detector in PyTorch on the CPU. Sides are exponentials up
# to 4,700 px, so a part of each coordinate is added. A detection is unmatched by rounding if its score or
# overlap is within the tolerance of a threshold or of another one.
_FLOAT32 = {
    "cpu": replace(SELF_TEST.cpu, relative=1e-4, unmatched=0.01),
    "cuda": replace(SELF_TEST.cuda, boxes=0.05, relative=1e-4, unmatched=0.01),
}
VALUES = {"cpu": 1e-3, "cuda": 2e-2}  # part of the largest value of an output, in float32


def tolerance_of(dtype: str, device: str, boxes: float) -> Tolerance:
    """Return the tolerance for a file. boxes: the value of `--tolerance`, for reduced precision."""
    if dtype == "float32":
        return _FLOAT32[device]
    return replace(SELF_TEST.cuda, boxes=boxes, iou=0.1)


def with_extras(tolerance: Tolerance, part: float, found: Detections) -> Tolerance:
    """Return a tolerance for one picture, with a part of the largest value of each further output."""
    most = {name: values.double().nan_to_num(0, 0, 0).abs() for name, values in found.extras.items()}
    extras = {name: part * float(values.max()) if values.numel() else 0.0 for name, values in most.items()}
    return replace(tolerance, extras=extras)


class Reference:
    """The answers of a detector on the CPU, in float32, in eval mode, one canvas at a time.

    canvases: uint8 [N, c, h, w]: the user's pictures, drawn pictures and noise. pictures: number of pictures
    at the beginning of `canvases`. thresholds: the score and IoU thresholds of the first comparison. outputs:
    dtype of each output, and its shape without batch and slots. slots: K, None if it varies.
    """

    def __init__(
        self,
        detector: Detector,
        thresholds: tuple[float, float],
        pictures: Sequence[Tensor] = (),
        drawn_pictures: Fitted | None = None,
        batches: Sequence[int] = BATCHES,
    ) -> None:
        """Choose canvases and thresholds.

        pictures: uint8 [C, H, W], in addition to drawn pictures. batches: batch sizes to compare.
        """
        self.detector, self.batches = detector, tuple(batches)
        own = fitted(detector, pictures).canvases if pictures else None
        canvases = (drawn_pictures or drawn(detector)).canvases
        canvases = canvases if own is None else torch.cat([own, canvases])
        self.pictures = len(canvases)
        self.canvases = torch.cat([canvases, example_canvases(detector, _NOISE_CANVASES)])
        operations = _operations(lambda: answer_of(detector, self.canvases[:1], *thresholds))
        if operations > _MOST_OPERATIONS:
            _logger.info("one canvas takes %.0f billion operations: comparing fewer", operations / 1e9)
            self.canvases = self.canvases[: len(pictures) + _FEW]
            self.pictures = min(self.pictures, len(self.canvases))
            self.batches = tuple(size for size in self.batches if size <= _FEW)
        self._found: dict[tuple[float, float], list[Detections]] = {}
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
        corners = 400 * torch.rand(2, 64, 2, 2, generator=torch.Generator().manual_seed(0))
        self.predictions, self.targets = torch.cat([corners.amin(dim=2), corners.amax(dim=2)], dim=-1)
        loss = getattr(detector, "loss", torch.ops.lensbox.masked_giou_loss)
        with torch.no_grad():
            self.loss = float(loss(self.predictions, self.targets))

    def found(self, thresholds: tuple[float, float]) -> list[Detections]:
        """Return the detections in each canvas at the given thresholds."""
        if thresholds not in self._found:
            with one_thread():
                answers = [answer_of(self.detector, canvas[None], *thresholds) for canvas in self.canvases]
            slots = {answer["scores"].shape[1] for answer in answers}
            self.slots = slots.pop() if len(slots) == 1 else None
            self.outputs = {name: (value.dtype, value.shape[2:]) for name, value in answers[0].items()}
            self._found[thresholds] = list(map(detections_in, answers))
        return self._found[thresholds]

    def found_in_photographs(self) -> list[Detections]:
        """Return the detections in the canvases as photographs, with preprocess and restore."""
        module, points = DetectorWrapper(self.detector), self.detector.specification.points
        with torch.no_grad(), one_thread():
            return [
                detections_in(outputs_in_picture(module, photograph, self.thresholds, points))
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
        with one_thread(), _saturated_scores(generator):
            for canvas, expected in zip(self.canvases, self.found(thresholds), strict=True):
                actual = detections_in(answer_of(noisy, canvas[None], *thresholds))
                tolerance = with_extras(_FLOAT32["cpu"], VALUES["cpu"], expected)
                change.add(expected, actual, thresholds, tolerance, "", self.slots)
        return change.unmatched / max(change.expected, 1)


class _Dispatch:
    call: Callable[[Any, Any, Any], Any]

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.call(function, args, kwargs or {})


class CallMode(_Dispatch, TorchDispatchMode):
    """Call `call(function, args, kwargs)` in place of each operator while active.

    `__torch_dispatch__` is inherited: the first call of a mode's own one imports torch's compiler, which
    takes a second, and four in a new environment.
    """

    def __init__(self, call: Callable[[Any, Any, Any], Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.call = call


def _operations(run: Callable[[], object]) -> int:
    """Return the number of floating-point operations of products and convolutions in a run."""
    counts: list[int] = []

    def counted(function: Any, args: Any, kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if count := flop_registry.get(function.overloadpacket):
            counts.append(count(*args, **kwargs, out_val=result))
        return result

    with CallMode(counted):
        run()
    return sum(counts)


def _saturated_scores(generator: torch.Generator) -> FunctionMode:
    """Round scores of large logits, which are all 1, to 1 or the numbers below it, as other runtimes do."""

    def rounded(function: Any, args: Any, kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if getattr(function, "__name__", "") in ("sigmoid", "softmax"):
            below = 1 - _ROUNDING * torch.rand(result.shape, generator=generator)
            result = torch.where(result == 1, below.to(result), result)
        return result

    return FunctionMode(rounded)


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
