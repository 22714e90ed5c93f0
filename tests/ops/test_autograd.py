"""When ops take part in autograd; the private backward ops, called directly, reject bad arguments."""

from collections.abc import Callable

import pytest
import torch
from box_reference import INTEGER_DTYPES, random_boxes
from torch import Tensor
from torch.autograd import forward_ad

from lensbox.ops import giou, jagged_giou_loss, masked_giou_loss, pairwise_giou

OPS = torch.ops.lensbox
EPS = 1e-7


def offsets(device: torch.device) -> Tensor:
    return torch.tensor([0, 2, 6], device=device)


def saved(device: torch.device) -> list[Tensor]:
    """Return the gradient of the loss, the loss, and its divisor in float64."""
    return [
        torch.tensor(1.0, device=device),
        torch.tensor(0.5, device=device),
        torch.tensor(6.0, dtype=torch.float64, device=device),
    ]


def call(op: str, boxes1: Tensor, boxes2: Tensor, wanted: list[bool]) -> tuple[Tensor, ...]:
    """Return the gradients of six pairs of boxes; `wanted` selects the gradients of boxes1 and boxes2."""
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
def test_rejects_gradients_of_integers(device: torch.device, op: str, dtype: torch.dtype) -> None:
    boxes, whole = random_boxes(6).to(device), random_boxes(6, dtype=dtype).to(device)
    with pytest.raises(TypeError, match=r"output_mask\[1\] must be False where \w+ holds integers.*got True"):
        call(op, boxes, whole, [True, True])
    if "loss" not in op:
        with pytest.raises(TypeError, match=r"output_mask\[0\] must be False where boxes1 holds integers"):
            call(op, whole, boxes, [True, False])


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"mask": [True] * 3}, ValueError, r"output_mask\[2\] must be False where weight is None, got True"),
        (
            {"weight": torch.ones(6, dtype=torch.bool), "mask": [True] * 3},
            TypeError,
            r"output_mask\[2\] must be False where weight holds integers",
        ),
        (
            {"weight": torch.ones(6), "loss": None, "mask": [True] * 3},
            ValueError,
            r"loss must be given where output_mask\[2\] is True, got None",
        ),
        (
            {"normalizer": torch.tensor(6.0)},
            TypeError,
            "normalizer must be Double for pred of Float, got Float",
        ),
        (
            {"loss": torch.tensor(0.5, dtype=torch.float64)},
            TypeError,
            "loss must be Float for pred of Float, got Double",
        ),
        ({"loss": torch.tensor([0.5])}, RuntimeError, r"loss must have shape \[\], got \[1\]"),
    ],
)
def test_masked_backward_rejects_bad_arguments(
    device: torch.device, changed: dict[str, object], error: type[Exception], message: str
) -> None:
    boxes = random_boxes(6).to(device)
    grad, loss, normalizer = saved(device)
    given = {"weight": None, "loss": loss, "normalizer": normalizer, "mask": [True, False, False]} | {
        name: value.to(device) if isinstance(value, Tensor) else value for name, value in changed.items()
    }
    tensors = (given["weight"], given["loss"], given["normalizer"])
    with pytest.raises(error, match=message):
        OPS._masked_giou_loss_backward(grad, boxes, boxes, *tensors, EPS, given["mask"])


def jagged(pred: Tensor, target: Tensor) -> Tensor:
    return jagged_giou_loss(pred[None], target, torch.tensor([0, len(target)], device=pred.device))


def weighted(pred: Tensor, target: Tensor) -> Tensor:
    return masked_giou_loss(pred, pred.detach() + 1, target[:, 0])


FUNCTIONS = [giou, pairwise_giou, masked_giou_loss, weighted, jagged]
every_function = pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
Function = Callable[[Tensor, Tensor], Tensor]


@every_function
def test_result_requires_grad_only_if_an_input_does(device: torch.device, function: Function) -> None:
    a, b = random_boxes(6).to(device), random_boxes(6).to(device)
    plain = function(a, b)
    assert not plain.requires_grad
    for side in (0, 1):
        inputs = [a, b]
        inputs[side] = inputs[side].clone().requires_grad_()
        result = function(*inputs)
        assert result.requires_grad
        assert torch.equal(result.detach(), plain)
        with torch.no_grad():
            assert not function(*inputs).requires_grad


@every_function
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is")  # called by torch itself; deprecated
def test_rejects_forward_mode_tangents(device: torch.device, function: Function) -> None:
    a, b = random_boxes(6).to(device), random_boxes(6).to(device)
    with forward_ad.dual_level():
        for inputs in (
            (forward_ad.make_dual(a, torch.ones_like(a)), b),
            (a, forward_ad.make_dual(b, torch.ones_like(b))),
        ):
            with pytest.raises(RuntimeError, match="jvp is not implemented"):
                function(*inputs)


@every_function
def test_rejects_torch_func(device: torch.device, function: Function) -> None:
    a, b = random_boxes(6).to(device), random_boxes(6).to(device)
    with pytest.raises(RuntimeError, match="functorch transforms"):
        torch.func.grad(lambda x: function(x, b).sum())(a)
