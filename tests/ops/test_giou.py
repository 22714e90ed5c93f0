"""giou and pairwise_giou against float64 and numbers worked by hand."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from box_reference import BOX_DTYPES, check_op, giou_reference, random_boxes
from torch import Tensor

from lensbox.ops import giou, pairwise_giou

Giou = Callable[[Tensor, Tensor], Tensor]

# By hand: intersection, union and enclosing area of the pair are in the comment.
WORKED_CASES = [
    ([0, 0, 10, 10], [0, 0, 10, 10], 1.0),  # 100, 100, 100
    ([0, 0, 10, 10], [5, 5, 15, 15], 25 / 175 - 50 / 225),  # 25, 175, 225
    ([0, 0, 10, 10], [20, 0, 30, 10], -100 / 300),  # 0, 200, 300
    ([0, 0, 10, 10], [10, 0, 20, 10], 0.0),  # they touch: 0, 200, 200
    ([0, 0, 4, 4], [1, 1, 3, 3], 4 / 16),  # one inside the other: 4, 16, 16
    ([10, 10, 0, 0], [0, 0, 10, 10], 0.0),  # an inverted box is empty: 0, 100, 100
    ([5, 5, 5, 5], [5, 5, 5, 5], 0.0),  # two points: 0, 0, 0
]


@pytest.mark.parametrize(("a", "b", "expected"), WORKED_CASES)
def test_worked_cases(device: torch.device, a: list[int], b: list[int], expected: float) -> None:
    for dtype in (torch.float64, torch.float32, torch.float16, torch.uint8):
        boxes1 = torch.tensor([a], dtype=dtype, device=device)
        boxes2 = torch.tensor([b], dtype=dtype, device=device)
        tolerance = 1e-3 if dtype is torch.float16 else 1e-6
        assert giou(boxes1, boxes2).item() == pytest.approx(expected, abs=tolerance)
        assert pairwise_giou(boxes1, boxes2).item() == pytest.approx(expected, abs=tolerance)


def pairwise_reference(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    return giou_reference(boxes1[..., :, None, :], boxes2[..., None, :, :])


@pytest.mark.parametrize("dtype1", BOX_DTYPES)
@pytest.mark.parametrize("dtype2", BOX_DTYPES)
def test_every_pair_of_dtypes(device: torch.device, dtype1: torch.dtype, dtype2: torch.dtype) -> None:
    boxes = random_boxes(3, 37, dtype=dtype1), random_boxes(3, 37, dtype=dtype2)
    trains = [0, 1] if dtype1 == dtype2 and dtype1.is_floating_point else []
    promoted = torch.promote_types(dtype1, dtype2)
    for op, reference in ((giou, giou_reference), (pairwise_giou, pairwise_reference)):
        out, _ = check_op(op, reference, boxes, device, trains)
        assert out.dtype == (promoted if promoted.is_floating_point else torch.float32)


@pytest.mark.parametrize("function", [giou, pairwise_giou])
def test_sums_of_gradients_too_large_for_their_dtype_are_infinite(
    device: torch.device, function: Callable[[Tensor, Tensor], Tensor]
) -> None:
    box = torch.tensor([[[0, 0, 0.001, 0.001]]], dtype=torch.float16, device=device, requires_grad=True)
    others = torch.tensor([0, 0, 0.002, 0.0015], dtype=torch.float16, device=device).expand(1000, 1, 4)
    (grad,) = torch.autograd.grad(function(box, others).sum(), box)
    assert grad.max() == float("inf")
    assert not grad.isnan().any()


@pytest.mark.parametrize(
    ("op", "reference", "shapes"),
    [
        (giou, giou_reference, [((), ()), ((7, 1), (5,)), ((2, 1, 3), (4, 1)), ((0,), ()), ((0,), (1,))]),
        (pairwise_giou, pairwise_reference, [((3,), (5,)), ((2, 3), (5,)), ((6, 1, 17), (2, 131))]),
        (pairwise_giou, pairwise_reference, [((0,), (3,)), ((3,), (0,)), ((0, 2), (3,))]),
    ],
)
def test_shapes_broadcast(device: torch.device, op: Giou, reference: Giou, shapes: list[Any]) -> None:
    for shape1, shape2 in shapes:
        check_op(op, reference, (random_boxes(*shape1), random_boxes(*shape2)), device)


def test_nan_is_not_hidden(device: torch.device) -> None:
    for position in range(4):
        boxes = torch.tensor([[0.0, 0, 10, 10]], device=device)
        boxes[0, position] = float("nan")
        other = torch.tensor([[1.0, 1, 5, 5]], device=device)
        assert giou(boxes, other).isnan().all()
        assert giou(other, boxes).isnan().all()


ZEROS = torch.zeros(3, 4)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((torch.zeros(3, 5), ZEROS), RuntimeError, r"boxes1 must have shape \[..., 4\].*got \[3, 5\]"),
        ((ZEROS, torch.tensor(1.0)), RuntimeError, r"boxes2 must have shape \[..., 4\].*got \[\]"),
        ((ZEROS.bool(), ZEROS), TypeError, "boxes1 must be float64.*got Bool"),
        ((ZEROS, ZEROS, float("nan")), ValueError, "eps must be between.*got nan"),
        ((ZEROS, ZEROS[:2]), RuntimeError, "must match"),
    ],
)
def test_rejects_bad_arguments(arguments: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        giou(*arguments)
    with pytest.raises(RuntimeError, match=r"boxes1 must have shape \[..., N, 4\], got \[4\]"):
        pairwise_giou(torch.zeros(4), ZEROS)
    with pytest.raises(RuntimeError, match=r"boxes2 must have shape \[..., M, 4\], got \[4\]"):
        pairwise_giou(ZEROS, torch.zeros(4))
