"""Any detector's `detect` as a module that exporters of graphs take: its thresholds are tensors."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import lensbox.ops  # noqa: F401 (registers torch.ops.lensbox)
from lensbox.model import Detector, DetectorSpec
from lensbox.model.protocol_check import named

_EXAMPLES = 2  # torch.export takes a batch of 1 for a constant


class ReplacedNms(TorchFunctionMode):
    """Within it, calls of `torch.ops.lensbox.padded_nms`, whoever makes them, are those of another function.

    An exported graph takes its thresholds as inputs, but the op takes numbers, of which an export would make
    constants. The function takes the op's arguments, with thresholds that may be tensors.
    """

    def __init__(self, padded_nms: Callable[..., tuple[Tensor, Tensor, Tensor, Tensor]]) -> None:
        super().__init__()
        self._padded_nms = padded_nms

    def __torch_function__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """See torch.overrides."""
        if func in (torch.ops.lensbox.padded_nms, torch.ops.lensbox.padded_nms.default):
            func = self._padded_nms
        return func(*args, **(kwargs or {}))


class TensorThresholds(ReplacedNms):
    """Within it, `torch.ops.lensbox.padded_nms` is the overload whose thresholds are tensors."""

    def __init__(self) -> None:
        super().__init__(_with_tensor_thresholds)


def _with_tensor_thresholds(
    boxes: Tensor,
    scores: Tensor,
    iou_threshold: Any,
    score_threshold: Any,
    *others: Any,
    **keywords: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    iou, score = (torch.as_tensor(value, dtype=torch.float64) for value in (iou_threshold, score_threshold))
    found: tuple[Tensor, Tensor, Tensor, Tensor] = torch.ops.lensbox.padded_nms.tensor_thresholds(
        boxes, scores, iou, score, *others, **keywords
    )
    return found


class DetectGraph(nn.Module):
    """outputs: the names of what `forward` returns, in their order."""

    def __init__(self, detector: Detector, tensor_thresholds: Callable[[], TorchFunctionMode]) -> None:
        """tensor_thresholds: makes the mode under which the operators of `detect` take them."""
        super().__init__()
        specification = detector.specification
        labels = ["labels"] if specification.classes else []
        self.outputs = ("boxes", "scores", "counts", *labels, *specification.extras)
        self.detector = cast(nn.Module, detector)
        self._tensor_thresholds = tensor_thresholds

    def forward(self, images: Tensor, score_threshold: Tensor, iou_threshold: Tensor) -> tuple[Tensor, ...]:
        """images: uint8 [B, c, h, w]; thresholds: floating point, []."""
        with torch.no_grad(), self._tensor_thresholds():
            found = named(self.detector.detect(images, score_threshold, iou_threshold))  # type: ignore[operator]
        return tuple(found[name] for name in self.outputs)


def example_canvases(specification: DetectorSpec) -> Tensor:
    """Noise on which `detect` is traced, uint8 [2, c, h, w], always the same."""
    size = specification.channels, specification.height, specification.width
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (_EXAMPLES, *size), dtype=torch.uint8, generator=generator)
