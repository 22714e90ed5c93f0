"""Finite boxes whose areas overflow: the GIoU of a wider format, and no harm to the boxes beside them.

And the division of the CUDA kernels, which rounds as the CPU's does for all floats.
"""

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from box_reference import FLOAT_DTYPES, exact_giou, extreme_boxes, nms_reference, random_boxes
from programs import run
from torch import Tensor

from lensbox.ops import (
    PaddedDetections,
    giou,
    jagged_giou_loss,
    masked_giou_loss,
    masked_giou_loss_and_grad,
    padded_nms,
    pairwise_giou,
)
from lensbox.ops.boxes import with_gradient

# Coordinates whose areas fit into the dtype, and some with which they do not.
COORDINATES = {
    torch.float64: [0.0, 1.0, -3.0, 0.1, 1e4, 1e100, -1e150, 1e151, 4e200, -1e300, 1.7e308],
    torch.float32: [0.0, 1.0, -3.0, 0.1, 1e4, 1e9, -1e18, 2e19, -3e25, 1e38, 3.4e38],
    torch.bfloat16: [0.0, 1.0, -3.0, 0.1, 1e4, 1e9, -1e18, 2e19, -3e25, 1e38, 3.3e38],
}
HUGE_DTYPES = list(COORDINATES)

LONG_BOXES = [
    [1, 1, 3, 2e19],
    [-2e19, 1, 3, 1.5],
    [0, 0, 3e19, 2e20],
    [-3e38, 0, 3e38, 2],
    [5, -3e38, 6, 3e38],
]


def huge_boxes(count: int, dtype: torch.dtype) -> Tensor:
    table = torch.tensor(COORDINATES[dtype], dtype=torch.float64).to(dtype)
    return table[torch.randint(len(table), (count, 4))]


def assert_exact(ours: Tensor, boxes1: Tensor, boxes2: Tensor, eps: float) -> None:
    """GIoU of pairs of boxes `[N, 4]` against rational arithmetic."""
    expected = [exact_giou(a, b, eps) for a, b in zip(boxes1.tolist(), boxes2.tolist(), strict=True)]
    tolerance = 1e-12 if ours.dtype == torch.float64 else 8e-3 if ours.dtype == torch.bfloat16 else 2e-6
    torch.testing.assert_close(
        ours.cpu().double(), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=tolerance
    )


@pytest.mark.parametrize("dtype", HUGE_DTYPES)
@pytest.mark.parametrize("box", LONG_BOXES, ids=str)
def test_a_huge_box_equals_itself(device: torch.device, dtype: torch.dtype, box: list[float]) -> None:
    boxes = torch.tensor([box], dtype=torch.float64, device=device)
    boxes = (boxes * (1e132 if dtype == torch.float64 else 1)).to(dtype)
    assert giou(boxes, boxes).item() == 1
    assert pairwise_giou(boxes, boxes).item() == 1
    weight = torch.tensor([0.75], device=device)
    assert masked_giou_loss(boxes, boxes).item() == 0
    assert masked_giou_loss(boxes, boxes, weight).item() == 0
    assert jagged_giou_loss(boxes[None], boxes, torch.tensor([0, 1], device=device)).item() == 0


def test_huge_integers(device: torch.device) -> None:
    boxes = torch.tensor([[1, 1, 3, 2**62], [-(2**61), 0, 2**61, 2]], device=device)
    assert giou(boxes, boxes).tolist() == [1, 1]
    assert giou(boxes, boxes.double()).tolist() == [1, 1]


@pytest.mark.parametrize("dtype", HUGE_DTYPES)
@pytest.mark.parametrize("eps", [1e-18, 1e-7, 1e6])
def test_giou_against_rational_arithmetic(device: torch.device, dtype: torch.dtype, eps: float) -> None:
    boxes1, boxes2 = huge_boxes(500, dtype), huge_boxes(500, dtype)
    assert_exact(giou(boxes1.to(device), boxes2.to(device), eps), boxes1, boxes2, eps)
    rows, columns = boxes1[:20], boxes2[:25]
    pairs = pairwise_giou(rows.to(device), columns.to(device), eps)
    assert_exact(pairs.flatten(), rows.repeat_interleave(25, 0), columns.repeat(20, 1), eps)


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("function", [giou, masked_giou_loss])
def test_finite_boxes_give_finite_results(
    device: torch.device, function: Callable[[Tensor, Tensor], Tensor], dtype: torch.dtype
) -> None:
    boxes = [extreme_boxes(20000, dtype).to(device).requires_grad_() for _ in range(2)]
    out = function(boxes[0], boxes[1])
    assert out.isfinite().all()
    assert (1 - out if out.dim() == 0 else out).abs().max() <= 1 + 1e-5
    _, of_pred = masked_giou_loss_and_grad(boxes[0].detach(), boxes[1].detach())
    grads = [*torch.autograd.grad(out.sum(), boxes, retain_graph=True), of_pred]
    # float16 ends at 65504: a gradient beyond is infinite, as any is if the upstream gradient is huge.
    grads += torch.autograd.grad(out, boxes, torch.full_like(out, 6e4 if dtype == torch.float16 else 1e30))
    assert not any(grad.isnan().any() for grad in grads)
    assert dtype == torch.float16 or all(grad.isfinite().all() for grad in grads[:3])


# Factors of x and of y. A pair keeps its value; its gradient is divided by them.
STRETCHES = {
    torch.float32: [(2.0**60, 1.0), (1.0, 2.0**100), (2.0**118, 2.0**58), (2.0**110, 2.0**-10)],
    torch.float64: [(2.0**500, 1.0), (1.0, 2.0**900), (2.0**1000, 2.0**498), (2.0**990, 2.0**-90)],
}


@pytest.mark.parametrize("dtype", STRETCHES)
@pytest.mark.parametrize("case", range(4))
def test_stretched_boxes(device: torch.device, dtype: torch.dtype, case: int) -> None:
    x, y = STRETCHES[dtype][case]
    stretch = torch.tensor([x, y, x, y], dtype=dtype, device=device)
    pred, target = random_boxes(40, dtype=dtype).to(device), random_boxes(40, dtype=dtype).to(device)
    weight = torch.rand(40, dtype=dtype, device=device)
    offsets = torch.tensor([0, 40], device=device)
    losses: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "giou": lambda a, b: (giou(a, b) * weight).sum(),
        "pairwise": lambda a, b: (pairwise_giou(a, b) * weight).sum(),
        "masked": masked_giou_loss,
        "weighted": lambda a, b: masked_giou_loss(a, b, weight),
        "jagged": lambda a, b: jagged_giou_loss(a[None], b, offsets),
    }
    for name, loss in losses.items():
        plain = [boxes.clone().requires_grad_() for boxes in (pred, target)]
        stretched = [(boxes * stretch).requires_grad_() for boxes in (pred, target)]
        values = [loss(*boxes) for boxes in (plain, stretched)]
        torch.testing.assert_close(values[1], values[0], msg=partial("{}: {}".format, name))
        # Gradients of a stretched coordinate would underflow; those too large for their dtype are left out.
        upstream = torch.tensor(x if y == 1 else y if x == 1 else 1.0, dtype=dtype, device=device)
        expected = torch.autograd.grad(values[0], plain)
        grads = torch.autograd.grad(values[1], stretched, upstream)
        for ours, theirs in zip(grads, expected, strict=True):
            assert ours.isfinite().all(), name
            back = ours * (stretch / upstream)
            known = (ours.abs() > torch.finfo(dtype).tiny) & (ours.abs() < torch.finfo(dtype).max)
            torch.testing.assert_close(back[known], theirs[known], rtol=1e-4, atol=1e-7)
            assert known.any(), name


@pytest.fixture
def flush_denormal(device: torch.device) -> Iterator[None]:
    """The CPU rounds denormal numbers to 0, as some services ask for."""
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot flush denormal numbers")
    yield
    torch.set_flush_denormal(False)


def crowded_with(huge: list[list[float]], count: int, side: float) -> tuple[Tensor, Tensor]:
    """`count` boxes in pairs that overlap by most of `side`, and the huge ones, with falling scores."""
    corner = torch.arange(count // 2).repeat_interleave(2)[:, None] * 64.0 + torch.rand(count, 2) * side / 16
    boxes = torch.cat([torch.cat([corner, corner + side], 1), torch.tensor(huge)])
    scores = torch.rand(len(boxes)).sort(descending=True).values
    return boxes[torch.randperm(len(boxes))][None], scores[None]


def assert_found(found: PaddedDetections, images: int, expected: list[int]) -> None:
    """Assert that each image keeps these boxes."""
    assert found.indices[:, : len(expected)].tolist() == [expected] * images
    assert found.counts.tolist() == [len(expected)] * images


# Few images are shared among blocks on a GPU, many get one each, and beyond 1,024 candidates it is another
# kernel.
NMS_SIZES = [(1, 64), (1, 500), (50, 500), (2, 1100)]


@pytest.mark.parametrize(("images", "count"), NMS_SIZES)
@pytest.mark.parametrize("side", [2.0**-7, 8.0])
def test_a_huge_box_leaves_others_alone(
    device: torch.device, images: int, count: int, side: float, flush_denormal: None
) -> None:
    boxes, scores = crowded_with([[0, 0, 2e19, 3], [-1, -1, 2, 3e38]], count, side)
    expected = nms_reference(boxes[0], scores[0], 0.5, 0.0, 2000, 2000)
    assert len(expected) == count // 2 + 2
    arguments = boxes.repeat(images, 1, 1).to(device), scores.repeat(images, 1).to(device)
    assert_found(padded_nms(*arguments, 0.5, 0.0, 2000, 2000), images, expected)


@pytest.mark.parametrize(("images", "count"), NMS_SIZES)
@pytest.mark.parametrize("threshold", [0.0, 0.5])
@pytest.mark.parametrize("dtype", HUGE_DTYPES)
def test_nms_of_huge_boxes(
    device: torch.device, images: int, count: int, threshold: float, dtype: torch.dtype
) -> None:
    boxes = random_boxes(count, size=60.0).round().to(dtype)
    boxes[::9] = huge_boxes(len(boxes[::9]), dtype).trunc()
    scores = torch.rand(count)
    arguments = boxes.repeat(images, 1, 1).to(device), scores.repeat(images, 1).to(device)
    for kinds in (None, torch.randint(0, 2, (count,))):
        expected = nms_reference(boxes, scores, threshold, 0.1, 2000, 100, kinds, whole=True)
        moved = kinds.repeat(images, 1).to(device) if kinds is not None else None
        assert_found(padded_nms(*arguments, threshold, 0.1, 2000, 100, moved), images, expected)


@pytest.mark.exhaustive
@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")
def test_every_quotient_is_rounded_as_the_cpu_rounds_it(tmp_path: Path) -> None:
    check, program = Path(__file__).with_name("quotient_check.cpp"), tmp_path / "quotient_check"
    run("c++", "-std=c++20", "-O2", "-ffp-contract=off", check, "-o", program)
    assert int(run(program).stdout) > 40_000_000


def test_the_known_gradient_is_scaled_by_the_outer_one() -> None:
    leaf = torch.zeros(2, 3, requires_grad=True)
    gradient = torch.arange(6.0).view(2, 3)
    value = with_gradient(leaf, torch.tensor(5.0), gradient)
    assert value.item() == 5
    (value * 2 + leaf.sum()).backward()
    assert leaf.grad is not None
    assert torch.equal(leaf.grad, 2 * gradient + 1)
