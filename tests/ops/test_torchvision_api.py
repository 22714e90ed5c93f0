"""The torchvision-named functions, against torchvision's formulas, and torchvision where it is installed."""

from collections.abc import Callable

import pytest
import torch
from box_reference import BOX_DTYPES, areas_of, nms_reference, random_boxes
from programs import require_torchvision
from torch import Tensor

from lensbox.ops import batched_nms, box_iou, generalized_box_iou, generalized_box_iou_loss, nms
from lensbox.runtime.torchscript import quiet_torchscript


def drawn(count: int, size: float) -> Tensor:
    """Return boxes with sides of 1 to 1 + 0.3 * size."""
    low = torch.rand(count, 2) * size * 0.7
    return torch.cat([low, low + 1 + torch.rand(count, 2) * size * 0.3], 1)


@pytest.mark.parametrize("dtype", BOX_DTYPES)
def test_box_iou_of_worked_boxes(device: torch.device, dtype: torch.dtype) -> None:
    boxes1 = torch.tensor([[0, 0, 10, 10], [5, 5, 5, 5], [9, 9, 1, 1]], dtype=dtype, device=device)
    boxes2 = torch.tensor([[0, 0, 10, 10], [5, 5, 15, 15], [20, 0, 30, 10], [0, 0, 10, 5], [5, 5, 5, 5]])
    out = box_iou(boxes1, boxes2.to(device))
    # Intersections 100, 25, 0, 50, 0 of unions 100, 175, 200, 100, 100; empty and inverted boxes have none.
    expected = torch.tensor([[1, 25 / 175, 0, 0.5, 0], [0.0] * 5, [0.0] * 5]).to(out)
    torch.testing.assert_close(out, expected)
    assert out.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


# Of boxes with sides of 1 to 31 in 0..100.
SCALES = {torch.float64: [1e-30, 1e-9, 1, 1e30, 1e150], torch.float16: [1e-2, 1, 1e2]}
SCALES |= {dtype: [1e-15, 1e-9, 1e-4, 1, 1e4, 1e15] for dtype in (torch.float32, torch.bfloat16)}


@pytest.mark.parametrize(("dtype", "scale"), [(d, scale) for d in BOX_DTYPES for scale in SCALES.get(d, [1])])
def test_values_do_not_depend_on_the_scale(device: torch.device, dtype: torch.dtype, scale: float) -> None:
    boxes1, boxes2 = (drawn(24, 100.0).to(device).double() * scale for _ in range(2))
    if not dtype.is_floating_point:
        boxes1, boxes2 = boxes1.round(), boxes2.round()
    boxes1, boxes2 = boxes1.to(dtype), boxes2.to(dtype)
    intersection, union, hull = areas_of(boxes1[:, None], boxes2)
    iou, giou = intersection / union, intersection / union - (hull - union) / hull
    assert iou.max() > 0.1
    error = 1e-12 if dtype == torch.float64 else 1e-5
    for function, expected in ((box_iou, iou), (generalized_box_iou, giou)):
        ours = function(boxes1, boxes2)
        assert ours.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        torch.testing.assert_close(ours.double(), expected, rtol=error, atol=error)


@pytest.mark.parametrize("size", [1e19, 1e30, 3e38])
def test_boxes_whose_areas_overflow_give_finite_values(device: torch.device, size: float) -> None:
    unit = torch.tensor([[0.0, 0, 1, 1], [-1, -1, 1, 1], [0, 0, 0, 1]], device=device)
    boxes = (size * unit).requires_grad_()
    for function in (box_iou, generalized_box_iou, generalized_box_iou_loss):
        out = function(boxes, boxes.detach().flip(0))
        (grad,) = torch.autograd.grad(out.sum(), boxes)
        assert out.isfinite().all()
        assert grad.isfinite().all()
    assert box_iou(boxes[:2], boxes[:2]).diagonal().tolist() == [1, 1]


@pytest.mark.parametrize("side", [1.0, 1e-2, 1e-4, 1e-8])
def test_loss_adds_eps_to_the_denominators(device: torch.device, side: float) -> None:
    boxes1 = torch.tensor([[0, 0, side, side]], dtype=torch.float64, device=device)
    boxes2 = torch.tensor([[0, 0, side, side / 2]], dtype=torch.float64, device=device)
    area, eps = side * side, 1e-7
    expected = 1 - area / 2 / (area + eps)  # union and enclosing box are boxes1
    assert generalized_box_iou_loss(boxes1, boxes2).item() == pytest.approx(expected, rel=1e-12)


def test_box_iou_of_many_images_and_its_gradient(device: torch.device) -> None:
    boxes1 = random_boxes(3, 1, 5, dtype=torch.float64).to(device).requires_grad_()
    boxes2 = random_boxes(2, 4, dtype=torch.float64).to(device)
    out = box_iou(boxes1, boxes2)
    assert out.shape == (3, 2, 5, 4)
    assert torch.equal(out[1, 0], box_iou(boxes1[1, 0], boxes2[0]))
    for function in (box_iou, generalized_box_iou):
        assert torch.autograd.gradcheck(function, (boxes1, boxes2))
        empty = torch.zeros(1, 4, device=device, requires_grad=True)
        (grad,) = torch.autograd.grad(function(empty, empty).sum(), empty)
        assert (grad == 0).all()


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_generalized_box_iou_loss(device: torch.device, reduction: str) -> None:
    boxes1, boxes2 = drawn(24, 100.0).to(device).requires_grad_(), drawn(24, 100.0).to(device)
    loss = generalized_box_iou_loss(boxes1, boxes2, reduction=reduction)
    intersection, union, hull = areas_of(boxes1, boxes2)
    exact = 1 - intersection / (union + 1e-7) + (hull - union) / (hull + 1e-7)
    expected = exact if reduction == "none" else getattr(exact, reduction)()
    torch.testing.assert_close(loss, expected.float(), rtol=1e-5, atol=1e-6)
    (grad,), (wanted,) = (torch.autograd.grad(value.sum(), boxes1) for value in (loss, expected))
    torch.testing.assert_close(grad, wanted, rtol=1e-4, atol=1e-7)
    empty = torch.zeros(0, 4, dtype=torch.float16, device=device, requires_grad=True)
    loss = generalized_box_iou_loss(empty, empty.detach(), reduction=reduction)
    loss.sum().backward()
    assert loss.sum().item() == 0
    assert loss.dtype == torch.float32


def test_nms_and_batched_nms(device: torch.device) -> None:
    boxes, scores, kinds = drawn(60, 40.0), torch.rand(60), torch.randint(0, 3, (60,))
    moved = boxes.to(device), scores.to(device)
    assert nms(*moved, 0.5).tolist() == nms_reference(boxes, scores, 0.5, -1.0, 60, 60)
    kept = batched_nms(*moved, kinds.to(device), 0.5).tolist()
    assert kept == nms_reference(boxes, scores, 0.5, -1.0, 60, 60, kinds)
    assert nms(moved[0][:0], moved[1][:0], 0.5).tolist() == []


@pytest.mark.exhaustive
def test_values_are_those_of_torchvision() -> None:
    require_torchvision()
    from torchvision import ops

    boxes, others, scores, kinds = drawn(60, 40.0), drawn(60, 40.0), torch.rand(60), torch.arange(60) % 3
    for function in (box_iou, generalized_box_iou, generalized_box_iou_loss):
        theirs = getattr(ops, function.__name__)(boxes, others)
        torch.testing.assert_close(function(boxes, others), theirs, rtol=1e-5, atol=1e-6)
    assert torch.equal(nms(boxes, scores, 0.5), ops.nms(boxes, scores, 0.5))
    theirs = ops.batched_nms(boxes, scores, kinds, 0.5)
    assert torch.equal(batched_nms(boxes, scores, kinds, 0.5), theirs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_nms_keeps_scores_of_minus_infinity(device: torch.device, dtype: torch.dtype) -> None:
    boxes = torch.tensor([[0.0, 0, 1, 1], [5, 5, 6, 6], [8, 8, 9, 9]], device=device)
    scores = torch.tensor([-float("inf"), 1, float("nan")], dtype=dtype, device=device)
    assert nms(boxes, scores, 0.5).tolist() == [1, 0]
    assert batched_nms(boxes, scores, torch.zeros(3, device=device), 0.5).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("boxes", "scores", "message"),
    [
        (torch.zeros(4), torch.zeros(1), "boxes should be a 2d tensor, got 1D"),
        (torch.zeros(2, 5), torch.zeros(2), "boxes should have 4 elements in dimension 1, got 5"),
        (torch.zeros(2, 4), torch.zeros(2, 1), "scores should be a 1d tensor, got 2D"),
        (torch.zeros(2, 4), torch.zeros(3), "same number of elements in dimension 0, got 2 and 3"),
    ],
)
def test_rejects_bad_arguments_like_torchvision(
    boxes: torch.Tensor, scores: torch.Tensor, message: str
) -> None:
    with pytest.raises(RuntimeError, match=message):
        nms(boxes, scores, 0.5)
    with pytest.raises(RuntimeError, match=message):
        batched_nms(boxes, scores, torch.zeros(len(scores)), 0.5)
    with pytest.raises(RuntimeError, match=r"idxs should have the shape of scores, \[2\], got \[3\]"):
        batched_nms(torch.zeros(2, 4), torch.zeros(2), torch.zeros(3), 0.5)
    with pytest.raises(ValueError, match="Invalid Value for arg 'reduction': 'max"):
        generalized_box_iou_loss(torch.zeros(2, 4), torch.zeros(2, 4), reduction="max")


@pytest.mark.parametrize("function", [box_iou, generalized_box_iou, generalized_box_iou_loss])
def test_rejects_boxes_of_other_shapes_and_dtypes(function: Callable[..., Tensor]) -> None:
    boxes = torch.zeros(2, 4)
    with pytest.raises(RuntimeError, match=r"boxes2 must have shape \[.*4\], got \[2, 3\]"):
        function(boxes, boxes[:, :3])
    with pytest.raises(TypeError, match=r"boxes1 must be real numbers, got torch\.complex64"):
        function(boxes.to(torch.complex64), boxes)


SUPPRESSIONS = [nms, batched_nms]
both_suppressions = pytest.mark.parametrize("function", SUPPRESSIONS, ids=lambda function: function.__name__)


def suppression_inputs(function: object, count: int, device: torch.device) -> tuple[Tensor, ...]:
    inputs = (random_boxes(count).to(device), torch.rand(count, device=device))
    return inputs if function is nms else (*inputs, torch.arange(count, device=device) % 3)


@both_suppressions
def test_one_graph_for_ten_numbers_of_boxes(device: torch.device, function: Callable[..., Tensor]) -> None:
    from torch._dynamo.testing import CompileCounter  # imports torch's compiler, which takes seconds

    torch.compiler.reset()
    counter = CompileCounter()
    compiled = torch.compile(function, dynamic=True, fullgraph=True, backend=counter)
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        for count in (5, 7, 9, 12, 20, 33, 50, 64, 80, 100):
            inputs = suppression_inputs(function, count, device)
            assert torch.equal(compiled(*inputs, 0.4), function(*inputs, 0.4))
    assert counter.frame_count == 1


@both_suppressions
def test_export_with_any_number_of_boxes(device: torch.device, function: Callable[..., Tensor]) -> None:
    class Suppress(torch.nn.Module):
        def forward(self, *inputs: Tensor) -> Tensor:
            return function(*inputs, 0.4)

    inputs = suppression_inputs(function, 10, device)
    shapes = (tuple({0: torch.export.Dim("N")} for _ in inputs),)
    program = torch.export.export(Suppress(), inputs, dynamic_shapes=shapes, strict=False)
    for count in (2, 5, 40):
        others = suppression_inputs(function, count, device)
        assert torch.equal(program.module()(*others), function(*others, 0.4))


@both_suppressions
def test_torchscript(device: torch.device, function: Callable[..., Tensor]) -> None:
    example = suppression_inputs(function, 7, device)
    with quiet_torchscript():
        scripted = torch.jit.script(function)
        traced = torch.jit.trace(lambda *inputs: function(*inputs, 0.4), example)
    for count in (0, 1, 5, 40):
        inputs = suppression_inputs(function, count, device)
        assert torch.equal(scripted(*inputs, 0.4), function(*inputs, 0.4))
        assert torch.equal(traced(*inputs), function(*inputs, 0.4))


def test_too_many_boxes_name_the_limit(device: torch.device) -> None:
    boxes = random_boxes(131_073).to(device)
    with pytest.raises(ValueError, match=r"at most 131072 candidates.*got 131073 for boxes of shape"):
        nms(boxes, boxes[:, 0], 0.5)
