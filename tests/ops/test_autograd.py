"""When ops take part in autograd, and the kinds of derivatives that they refuse."""

from collections.abc import Callable

import pytest
import torch
from box_reference import random_boxes
from torch import Tensor
from torch.autograd import forward_ad

from lensbox.ops import giou, jagged_giou_loss, masked_giou_loss, pairwise_giou


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
