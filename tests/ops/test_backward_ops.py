"""The private backward halves, called as they are: no memory that nobody wrote comes out of them."""

import pytest
import torch
from box_reference import INTEGER_DTYPES, random_boxes
from torch import Tensor

import lensbox.ops  # noqa: F401 registers the ops

OPS = torch.ops.lensbox
EPS = 1e-7


def offsets(device: torch.device) -> Tensor:
    return torch.tensor([0, 2, 6], device=device)


def saved(device: torch.device) -> list[Tensor]:
    """A gradient of the loss, a loss, and the double that it was divided by."""
    return [
        torch.tensor(1.0, device=device),
        torch.tensor(0.5, device=device),
        torch.tensor(6.0, dtype=torch.float64, device=device),
    ]


def call(op: str, boxes1: Tensor, boxes2: Tensor, wanted: list[bool]) -> tuple[Tensor, ...]:
    """Six pairs of boxes; `wanted` says which of the two gradients."""
    device = boxes1.device
    grad, loss, normalizer = saved(device)
    grads: tuple[Tensor, ...]
    if op == "giou":
        grads = OPS._giou_backward(torch.ones(6, device=device), boxes1, boxes2, EPS, wanted)
    elif op == "pairwise_giou":
        grads = OPS._pairwise_giou_backward(torch.ones(6, 6, device=device), boxes1, boxes2, EPS, wanted)
    elif op == "masked_giou_loss":
        grads = OPS._masked_giou_loss_backward(
            grad, boxes1, boxes2, None, loss, normalizer, EPS, [*wanted, False]
        )
    else:
        pred = boxes1[None].expand(2, 6, 4)
        grads = OPS._jagged_giou_loss_backward(grad, pred, boxes2, offsets(device), normalizer, EPS, wanted)
    return grads


EVERY_OP = ["giou", "pairwise_giou", "masked_giou_loss", "jagged_giou_loss"]


@pytest.mark.parametrize("op", EVERY_OP)
@pytest.mark.parametrize("dtype", INTEGER_DTYPES)
def test_integers_have_no_gradient(device: torch.device, op: str, dtype: torch.dtype) -> None:
    boxes, whole = random_boxes(6).to(device), random_boxes(6, dtype=dtype).to(device)
    with pytest.raises(TypeError, match=r"output_mask\[1\] must be False where \w+ holds integers.*got True"):
        call(op, boxes, whole, [True, True])
    if "loss" not in op:
        with pytest.raises(TypeError, match=r"output_mask\[0\] must be False where boxes1 holds integers"):
            call(op, whole, boxes, [True, False])


@pytest.mark.parametrize("op", EVERY_OP)
@pytest.mark.parametrize("wanted", [(True, False), (False, True), (False, False)])
def test_only_what_is_wanted(device: torch.device, op: str, wanted: tuple[bool, bool]) -> None:
    boxes1, boxes2 = random_boxes(6).to(device), random_boxes(6).to(device)
    both = call(op, boxes1, boxes2, [True, True])
    some = call(op, boxes1, boxes2, list(wanted))
    for is_wanted, ours, theirs in zip(wanted, some, both, strict=False):
        assert torch.equal(ours, theirs) if is_wanted else ours.numel() == 0


def test_weights(device: torch.device) -> None:
    boxes = random_boxes(6).to(device)
    grad, loss, normalizer = saved(device)
    arguments = (loss, normalizer, EPS, [True, True, True])
    with pytest.raises(ValueError, match=r"output_mask\[2\] must be False where weight is None, got True"):
        OPS._masked_giou_loss_backward(grad, boxes, boxes, None, *arguments)
    weight = torch.ones(6, dtype=torch.bool, device=device)
    with pytest.raises(TypeError, match=r"output_mask\[2\] must be False where weight holds integers"):
        OPS._masked_giou_loss_backward(grad, boxes, boxes, weight, *arguments)


def test_what_the_forward_gave(device: torch.device) -> None:
    boxes = random_boxes(6).to(device)
    grad, loss, normalizer = saved(device)
    rest = (EPS, [True, False, False])
    with pytest.raises(TypeError, match=r"normalizer must be Double for pred of Float, got Float"):
        OPS._masked_giou_loss_backward(grad, boxes, boxes, None, loss, normalizer.float(), *rest)
    with pytest.raises(TypeError, match=r"loss must be Float for pred of Float, got Double"):
        OPS._masked_giou_loss_backward(grad, boxes, boxes, None, loss.double(), normalizer, *rest)
    with pytest.raises(RuntimeError, match=r"loss must have shape \[\], got \[1\]"):
        OPS._masked_giou_loss_backward(grad, boxes, boxes, None, loss[None], normalizer, *rest)
    with pytest.raises(TypeError, match=r"normalizer must be Double for pred of Float, got Float"):
        OPS._jagged_giou_loss_backward(
            grad, boxes[None].expand(2, 6, 4), boxes, offsets(device), normalizer.float(), EPS, [True, False]
        )
    weight = torch.ones(6, device=device)
    with pytest.raises(ValueError, match=r"loss must be given where output_mask\[2\] is True, got None"):
        OPS._masked_giou_loss_backward(grad, boxes, boxes, weight, None, normalizer, EPS, [True, True, True])
