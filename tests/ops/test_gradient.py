"""A gradient that was computed with the value is what autograd gives."""

import torch

from lensbox.ops.gradient import with_gradient


def test_the_known_gradient_is_scaled_by_the_outer_one() -> None:
    leaf = torch.zeros(2, 3, requires_grad=True)
    gradient = torch.arange(6.0).view(2, 3)
    value = with_gradient(leaf, torch.tensor(5.0), gradient)
    assert value.item() == 5
    (value * 2 + leaf.sum()).backward()
    assert leaf.grad is not None
    assert torch.equal(leaf.grad, 2 * gradient + 1)
