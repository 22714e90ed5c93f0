"""masked_giou_loss_and_grad against masked_giou_loss and autograd, which are checked against float64."""

import pytest
import torch
from box_reference import BOX_DTYPES, FLOAT_DTYPES, TOLERANCE, extreme_boxes, loss_reference, random_boxes
from torch import Tensor

from lensbox.ops import masked_giou_loss, masked_giou_loss_and_grad


def some_padding(target: Tensor, fill: float = 0.3) -> Tensor:
    """The boxes of which a share is padding: y2 == 0, and something else in the other coordinates."""
    valid = torch.rand(target.shape[:-1], device=target.device) < fill
    target[..., 3] = torch.where(valid, target[..., 3], torch.zeros_like(target[..., 3]))
    return target


def check(pred: Tensor, target: Tensor, weight: Tensor | None = None) -> None:
    """The gradient is that of autograd to the bit wherever the normalizer is: weights that add up exactly."""
    leaf = pred.detach().clone().requires_grad_()
    expected = masked_giou_loss(leaf, target, weight)
    (expected_grad,) = torch.autograd.grad(expected, leaf)
    loss, grad = masked_giou_loss_and_grad(pred, target, weight)
    assert (loss.shape, loss.dtype) == ((), expected.dtype)
    assert (grad.shape, grad.dtype) == (pred.shape, pred.dtype)
    assert grad.is_contiguous()
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-6, atol=0)
    torch.testing.assert_close(grad, expected_grad, rtol=0, atol=0)


def whole_weight(*shape: int) -> Tensor:
    return (torch.rand(shape) * 4).floor()


@pytest.mark.parametrize("pred_dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("target_dtype", BOX_DTYPES)
def test_every_pair_of_dtypes(
    device: torch.device, pred_dtype: torch.dtype, target_dtype: torch.dtype
) -> None:
    pred, target = random_boxes(31, 67, dtype=pred_dtype), random_boxes(31, 67, dtype=target_dtype)
    check(pred.to(device), some_padding(target).to(device))
    check(pred.to(device), target.to(device), whole_weight(31, 67).to(device))


# On CUDA: nothing, one block of one warp or more, blocks that wait for each other.
@pytest.mark.parametrize(
    "shape", [(), (0,), (4, 0), (13,), (1, 129), (2, 512), (3, 5, 69), (64, 256), (1024, 256)], ids=str
)
@pytest.mark.parametrize("fill", [0.0, 0.02, 1.0])
def test_shapes(device: torch.device, shape: tuple[int, ...], fill: float) -> None:
    pred = random_boxes(*shape, dtype=torch.bfloat16).to(device)
    check(pred, some_padding(random_boxes(*shape, dtype=torch.uint8), fill).to(device))
    check(pred, random_boxes(*shape).to(device), whole_weight(*shape).to(device))


@pytest.mark.gpu
def test_batches_too_large_for_one_launch() -> None:
    slots = 4 * 256 * 4 * torch.cuda.get_device_properties(0).multi_processor_count
    pred, target = random_boxes(slots).cuda(), random_boxes(slots, dtype=torch.uint8).cuda()
    check(pred, some_padding(target))


@pytest.mark.parametrize("weighted", [False, True])
def test_against_float64(device: torch.device, weighted: bool) -> None:
    pred, target = random_boxes(9, 40), some_padding(random_boxes(9, 40))
    weight = torch.rand(9, 40) if weighted else None
    exact = pred.double().requires_grad_()
    expected = loss_reference(exact, target.double(), weight)
    (expected_grad,) = torch.autograd.grad(expected, exact)
    given = None if weight is None else weight.to(device)
    loss, grad = masked_giou_loss_and_grad(pred.to(device), target.to(device), given)
    torch.testing.assert_close(loss.cpu().double(), expected.detach(), **TOLERANCE[torch.float32])
    scale = expected_grad.abs().max().item()
    torch.testing.assert_close(grad.cpu().double(), expected_grad, rtol=2e-5, atol=2e-5 * scale)


def test_padding_is_never_read(device: torch.device) -> None:
    pred, target = random_boxes(64, 32).to(device), some_padding(random_boxes(64, 32)).to(device)
    clean = masked_giou_loss_and_grad(pred, target)
    pred[target[..., 3] == 0] = float("nan")
    for ours, theirs in zip(masked_giou_loss_and_grad(pred, target), clean, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_finite_boxes_give_finite_results(device: torch.device, dtype: torch.dtype) -> None:
    pred, target = extreme_boxes(20000, dtype).to(device), extreme_boxes(20000, dtype).to(device)
    loss, grad = masked_giou_loss_and_grad(pred, target)
    assert loss.isfinite()
    assert grad.isfinite().all()


def test_is_repeatable_to_the_bit(device: torch.device) -> None:
    pred = random_boxes(512, 128).to(device)
    target = some_padding(random_boxes(512, 128)).to(device)
    losses, grads = zip(*(masked_giou_loss_and_grad(pred, target) for _ in range(20)), strict=True)
    assert len({loss.item() for loss in losses}) == 1
    assert all(torch.equal(grad, grads[0]) for grad in grads)


def test_a_step_by_hand(device: torch.device) -> None:
    """The gradient goes into backward(), also where it was asked for of boxes that require one."""
    raw = random_boxes(5, 7).to(device).requires_grad_()
    target = random_boxes(5, 7).to(device)
    (expected,) = torch.autograd.grad(masked_giou_loss(raw * 2, target), raw)
    for detached in (True, False):
        boxes = raw * 2
        _, grad = masked_giou_loss_and_grad(boxes.detach() if detached else boxes, target)
        (ours,) = torch.autograd.grad(boxes, raw, grad)
        assert torch.equal(ours, expected)


def test_bad_input() -> None:
    boxes = torch.zeros(3, 4)
    with pytest.raises(RuntimeError, match=r"masked_giou_loss_and_grad: target must have the shape of pred"):
        masked_giou_loss_and_grad(boxes, torch.zeros(2, 4))
    with pytest.raises(TypeError, match=r"masked_giou_loss_and_grad: pred must be float64.*got Byte"):
        masked_giou_loss_and_grad(boxes.byte(), boxes)
    with pytest.raises(ValueError, match=r"masked_giou_loss_and_grad: eps must be between.*got 0"):
        masked_giou_loss_and_grad(boxes, boxes, None, 0.0)
