"""Kinds of operators, by which the time of a call is split up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lensbox.bench.timing import percentile

IMAGE_CONVOLUTION = "convolution 3x3 of the image (1 channel)"
DENSE = "convolution 3x3"
DEPTHWISE = "convolution, depthwise"
POINTWISE = "convolution, pointwise"
ELEMENTWISE = "elementwise (activations, sums, scaling the image)"
RESIZE = "resize"
LAYOUT = "concatenation, copies, views"
DECODING = "decoding of boxes"
SELECTION = "sigmoid, NMS, clipping"
OTHER = "other operators"
BETWEEN = "between operators"

KINDS = (
    IMAGE_CONVOLUTION,
    DENSE,
    DEPTHWISE,
    POINTWISE,
    ELEMENTWISE,
    RESIZE,
    LAYOUT,
    DECODING,
    SELECTION,
    OTHER,
    BETWEEN,
)

Shape = Sequence[int]


@dataclass(frozen=True)
class Share:
    """Of one call: how many operators of a kind ran, and for how many microseconds."""

    operators: int
    microseconds: float


class Split:
    """Collects the operators of one call."""

    def __init__(self) -> None:
        self._shares: dict[str, Share] = {}

    def add(self, kind: str, microseconds: float, operators: int = 1) -> None:
        before = self._shares.get(kind, Share(0, 0.0))
        self._shares[kind] = Share(before.operators + operators, before.microseconds + microseconds)

    def get(self, kind: str) -> Share:
        return self._shares.get(kind, Share(0, 0.0))


def convolution_kind(image: Shape, weight: Shape) -> str:
    """image: [B, C, H, W]; weight: [O, C / groups, kernel, kernel]."""
    if list(weight[2:]) == [1, 1]:
        return POINTWISE
    if image[1] == 1:
        return IMAGE_CONVOLUTION
    return DEPTHWISE if weight[1] == 1 else DENSE


def elementwise_kind(last_input: Shape, anchors: int) -> str:
    """Feature maps have four dimensions; tensors with a row for each anchor are decoded; what is left after
    suppression is clipped."""
    if len(last_input) == 4:
        return ELEMENTWISE
    return DECODING if anchors in last_input else SELECTION


def typical(splits: Sequence[Split]) -> Mapping[str, Share]:
    """Of many calls: the median of each kind that occurs, in the order of `KINDS`."""
    shares = {}
    for kind in KINDS:
        of_kind = [split.get(kind) for split in splits]
        if any(share.operators or share.microseconds for share in of_kind):
            median = percentile([share.microseconds for share in of_kind], 0.5)
            shares[kind] = Share(of_kind[0].operators, median)
    return shares
