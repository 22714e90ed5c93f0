"""masked_giou_loss and masked_giou_loss_and_grad against float64, worked values and numeric gradients."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from box_reference import (
    BOX_DTYPES,
    FLOAT_DTYPES,
    assert_close_in_scale,
    check_op,
    giou_reference,
    loss_reference,
    random_boxes,
)
from torch import Tensor

from lensbox.ops import jagged_giou_loss, masked_giou_loss, masked_giou_loss_and_grad


def padded_targets(*shape: int, dtype: torch.dtype = torch.float32, fill: float = 0.3) -> Tensor:
    """Return boxes of which a share of `fill` is valid; the others have y2 == 0 and any other coordinates."""
    target = random_boxes(*shape, dtype=dtype)
    padding = torch.rand(shape) >= fill
    target[..., 3] = torch.where(padding, torch.zeros_like(target[..., 3]), target[..., 3])
    return target


def check(
    pred: Tensor, target: Tensor, weight: Tensor | None, device: torch.device, only_pred: bool = False
) -> None:
    """Compare the loss and all gradients, or only the gradient of `pred`, with float64."""
    given = [pred, target] if weight is None else [pred, target, weight]
    loss, grads = check_op(masked_giou_loss, loss_reference, given, device, [0] if only_pred else None)
    in_double = torch.float64 in {tensor.dtype for tensor in given}
    assert loss.dtype == (torch.float64 if in_double else torch.float32)
    moved = None if weight is None else weight.to(device)
    alone, grad = masked_giou_loss_and_grad(pred.to(device), target.to(device), moved)
    torch.testing.assert_close(alone, loss)
    assert_close_in_scale(-2.5 * grad, grads[0].cpu().double(), loss.dtype)


def check_equal_to_autograd(pred: Tensor, target: Tensor, weight: Tensor | None = None) -> None:
    """Compare masked_giou_loss_and_grad with autograd to the bit, for weights whose sum is exact."""
    leaf = pred.detach().clone().requires_grad_()
    expected = masked_giou_loss(leaf, target, weight)
    (expected_grad,) = torch.autograd.grad(expected, leaf)
    loss, grad = masked_giou_loss_and_grad(pred, target, weight)
    assert (loss.shape, loss.dtype) == ((), expected.dtype)
    assert (grad.shape, grad.dtype) == (pred.shape, pred.dtype)
    assert grad.is_contiguous()
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-6, atol=0)
    torch.testing.assert_close(grad, expected_grad, rtol=0, atol=0)


def some_weights(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return whole numbers below 4 and 0 for half of the slots: their sum is exact."""
    return ((torch.rand(shape) * 4).floor() * (torch.rand(shape) > 0.5)).to(dtype)


@pytest.mark.parametrize("pred_dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("target_dtype", BOX_DTYPES)
def test_every_pair_of_dtypes(
    device: torch.device, pred_dtype: torch.dtype, target_dtype: torch.dtype
) -> None:
    pred, target = random_boxes(31, 67, dtype=pred_dtype), padded_targets(31, 67, dtype=target_dtype)
    check(pred, target, None, device)
    check_equal_to_autograd(pred.to(device), target.to(device))
    boxes, weight = random_boxes(31, 67, dtype=target_dtype), some_weights(31, 67)
    check(pred, boxes, weight, device, only_pred=True)  # training uses constant weights
    check_equal_to_autograd(pred.to(device), boxes.to(device), weight.to(device))


# On CUDA these need no launch, one block of one or more warps, and blocks that wait for each other.
@pytest.mark.parametrize(
    "shape",
    [(), (0,), (4, 0), (1, 1, 1), (13,), (1, 129), (2, 512), (3, 5, 69), (2, 2053), (64, 256), (512, 256)],
    ids=str,
)
@pytest.mark.parametrize("fill", [0.0, 0.02, 1.0])
def test_every_shape(device: torch.device, shape: tuple[int, ...], fill: float) -> None:
    pred, target, weight = random_boxes(*shape), padded_targets(*shape, fill=fill), some_weights(*shape)
    check(pred, target, None, device)
    check(pred, random_boxes(*shape), weight * fill, device)
    check_equal_to_autograd(pred.to(device), random_boxes(*shape).to(device), weight.to(device))
    half, bytes_ = pred.bfloat16(), padded_targets(*shape, dtype=torch.uint8, fill=fill)
    check_equal_to_autograd(half.to(device), bytes_.to(device))


@pytest.mark.gpu
def test_loss_and_grad_of_batches_too_large_for_one_launch() -> None:
    slots = 4 * 256 * 4 * torch.cuda.get_device_properties(0).multi_processor_count
    check_equal_to_autograd(random_boxes(slots).cuda(), padded_targets(slots, dtype=torch.uint8).cuda())


@pytest.mark.parametrize("pred_dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("target_dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("weight_dtype", [*FLOAT_DTYPES, torch.bool, torch.uint8, torch.int64])
def test_every_dtype_of_weights(
    device: torch.device, pred_dtype: torch.dtype, target_dtype: torch.dtype, weight_dtype: torch.dtype
) -> None:
    weight = (torch.rand(9, 21, dtype=torch.float64) * 3 * (torch.rand(9, 21) > 0.5)).to(weight_dtype)
    boxes = random_boxes(9, 21, dtype=pred_dtype), random_boxes(9, 21, dtype=target_dtype)
    check(*boxes, weight, device)
    check(*boxes, weight, device, only_pred=True)


@pytest.mark.parametrize("pred_dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("target_dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_extreme_weights_of_every_dtype(
    device: torch.device, pred_dtype: torch.dtype, target_dtype: torch.dtype, dtype: torch.dtype
) -> None:
    largest = torch.finfo(dtype).max / 64  # so that even a sum in float64 is finite
    boxes = random_boxes(6, dtype=pred_dtype), random_boxes(6, dtype=target_dtype)
    for scale in (largest, torch.finfo(dtype).tiny):
        check(*boxes, torch.tensor([1, 0.5, 0, 0.25, 1, 0.125]).to(dtype) * scale, device)


def test_worked_values(device: torch.device) -> None:
    pred = torch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 10], [float("nan")] * 4], device=device)
    target = torch.tensor([[0, 0, 10, 10], [20, 0, 30, 10], [7, 7, 7, 0]], dtype=torch.uint8, device=device)
    # GIoU 1 and -1/3; the third slot is padding.
    assert masked_giou_loss(pred, target).item() == pytest.approx((0 + 4 / 3) / 2)
    weight = torch.tensor([1.0, 3.0, 0.0], device=device)
    assert masked_giou_loss(pred, target, weight).item() == pytest.approx(3 * (4 / 3) / 4)
    # Weights that add up to less than 1 are divided by 1.
    assert masked_giou_loss(pred, target, weight / 8).item() == pytest.approx(3 / 8 * (4 / 3))
    # The article's figure is the mean GIoU itself.
    assert 1 - masked_giou_loss(pred, target).item() == pytest.approx((1 - 1 / 3) / 2)


@pytest.mark.parametrize("weighted", [False, True])
def test_padding_and_slots_of_weight_0_are_never_read(device: torch.device, weighted: bool) -> None:
    pred, target = random_boxes(64, 33).to(device), random_boxes(64, 33).to(device)
    weight = torch.rand(64, 33, device=device) * (torch.rand(64, 33, device=device) > 0.7)
    unread = weight == 0
    given = weight if weighted else None
    if not weighted:
        target[..., 3].masked_fill_(unread, 0)
    clean, clean_grad = masked_giou_loss_and_grad(pred, target, given)
    assert torch.equal(masked_giou_loss(pred, target, given), clean)
    pred[unread] = float("nan")
    target[unread] = torch.tensor([float("inf")] * 3 + [float("inf") if weighted else 0.0], device=device)
    leaf = pred.clone().requires_grad_()
    loss = masked_giou_loss(leaf, target, given)
    (grad,) = torch.autograd.grad(loss, leaf)
    assert torch.equal(loss.detach(), clean)
    assert grad.isfinite().all()
    assert (grad[unread] == 0).all()
    again = masked_giou_loss_and_grad(pred, target, given)
    torch.testing.assert_close(again, (clean, clean_grad), rtol=0, atol=0)


def test_gradients_too_large_for_their_dtype_are_infinite(device: torch.device) -> None:
    pred = torch.tensor([[0.0, 0, 1, 1]], dtype=torch.float16, device=device, requires_grad=True)
    target = torch.tensor([[5.0, 5, 6, 6]], device=device)
    # If the weights sum to less than 1, the gradient of a weight is 1 - giou, here above 1.
    weight = torch.tensor([0.5], dtype=torch.float16, device=device, requires_grad=True)
    loss = masked_giou_loss(pred, target, weight)
    of_pred, of_weight = torch.autograd.grad(loss, (pred, weight), torch.tensor(1e8, device=device))
    assert of_pred.abs().max() == of_weight == float("inf")
    assert not of_pred.isnan().any()


@pytest.mark.parametrize("only_pred", [True, False])
def test_weights_that_sum_above_float32(device: torch.device, only_pred: bool) -> None:
    pred, target = random_boxes(8), random_boxes(8)
    weight = torch.tensor([3e38, 3e38, 1e38, 3e37, 2e38, 0, 3e38, 3e38])
    gradients = []
    for dtype in (torch.float32, torch.float64):
        inputs = [tensor.to(device, dtype) for tensor in (pred, target, weight)]
        for tensor in inputs[: 1 if only_pred else 2]:
            tensor.requires_grad_()
        loss = masked_giou_loss(inputs[0], inputs[1], inputs[2])
        gradients.append(torch.autograd.grad(loss, [tensor for tensor in inputs if tensor.requires_grad]))
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-7)
        assert ours.abs().max() > 0


@pytest.mark.parametrize("last", [2.0**-30, 2.0**-10, 0.0])
def test_the_kink_lies_where_the_exact_sum_of_weights_is_above_1(device: torch.device, last: float) -> None:
    pred, target = random_boxes(2).to(device), random_boxes(2).to(device)
    weight = torch.tensor([1.0, last], device=device, requires_grad=True)  # 1 + 2^-30 is 1 in float32
    (grad,) = torch.autograd.grad(masked_giou_loss(pred, target, weight), weight)
    losses = 1 - giou_reference(pred, target)
    exact = weight.detach().double()
    loss_share = (exact * losses).sum() / exact.sum() if last > 0 else 0.0
    torch.testing.assert_close(grad.double(), (losses - loss_share) / exact.sum(), rtol=1e-4, atol=1e-6)


def test_is_repeatable_to_the_bit(device: torch.device) -> None:
    pred, target = random_boxes(512, 128).to(device), padded_targets(512, 128).to(device)
    losses = {masked_giou_loss(pred, target).item() for _ in range(20)}
    assert len(losses) == 1
    alone, grads = zip(*(masked_giou_loss_and_grad(pred, target) for _ in range(20)), strict=True)
    assert len({loss.item() for loss in alone}) == 1
    assert all(torch.equal(grad, grads[0]) for grad in grads)


ZEROS = torch.zeros(3, 4)


@pytest.mark.parametrize("function", [masked_giou_loss, masked_giou_loss_and_grad])
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((ZEROS.byte(), ZEROS), TypeError, "pred must be float64.*got Byte"),
        ((ZEROS, ZEROS.bool()), TypeError, "target must be float64.*got Bool"),
        ((torch.zeros(3, 5), torch.zeros(3, 5)), RuntimeError, r"pred must have shape \[..., 4\].*\[3, 5\]"),
        ((ZEROS, ZEROS[:1]), RuntimeError, r"target must have the shape of pred.*got \[1, 4\]"),
        ((ZEROS, ZEROS, torch.ones(2)), RuntimeError, r"weight must have the shape.*got \[2\]"),
        ((ZEROS, ZEROS, None, -1.0), ValueError, "eps must be between.*got -1"),
    ],
)
def test_rejects_bad_arguments(
    function: Callable[..., object], arguments: tuple[Any, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=f"{function.__name__}: {message}"):
        function(*arguments)


@pytest.mark.parametrize(
    "target",
    [[-1.0, -1, -1, -1], [50.0, 50, 20, 10], [0.0, 0, float("inf"), 1], [0.0, 0, 1, float("nan")]],
    ids=["padded with -1", "cx, cy, w, h", "infinite", "NaN"],
)
def test_check_rejects_targets_that_are_no_boxes(device: torch.device, target: list[float]) -> None:
    targets = torch.tensor([[0.0, 0, 1, 1], [7, 7, 7, 0], target], device=device)
    ones = torch.ones_like(targets)
    for weight in (None, torch.tensor([1, 0, 1], device=device)):
        masked_giou_loss(ones, targets, weight)
        with pytest.raises(ValueError, match=r"targets must be finite boxes .* at \[2\]"):
            masked_giou_loss(ones, targets, weight, check=True)
    masked_giou_loss(ones, targets, torch.tensor([1, 0, 0], device=device), check=True)
    with pytest.raises(ValueError, match=r"at \[0\]"):
        jagged_giou_loss(ones[None], targets[2:], torch.tensor([0, 1], device=device), check=True)
