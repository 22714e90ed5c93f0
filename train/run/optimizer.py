"""AdamW with a learning rate that a captured step can be told anew, and gradients of several processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lensbox.train.run import process_group


def make_optimizer(
    parameters: Sequence[Tensor], rate: Tensor, weight_decay: float, capturable: bool
) -> torch.optim.AdamW:
    """AdamW with weight decay on parameters of more than one dimension.

    Args:
        rate: scalar tensor, on the device of the parameters; what it holds at a step is the learning rate.
        capturable: steps will be captured into a CUDA graph.
    """
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=rate, fused=True)
    share_rate(optimizer, rate, capturable)
    return optimizer


def share_rate(optimizer: torch.optim.AdamW, rate: Tensor, capturable: bool) -> None:
    """Makes the optimiser read `rate`, also after a state was loaded, which puts a copy in its place."""
    for group in optimizer.param_groups:
        group["lr"] = rate
        group["capturable"] = capturable


def load_moments(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Takes up the moments and step counts of a `state_dict`. Rates, weight decay and all other options stay
    what the configuration made them: a resumed run may have changed them."""
    options = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({**state, "param_groups": options})


def join_gradients(parameters: Sequence[Tensor], quality: Tensor) -> None:
    """One all-reduce for all gradients: a small net has many small ones.

    A process's gradient was divided by its sum of qualities. Here that is undone and the sum over all
    processes takes its place, so that the result is the gradient of one loss over all their views. (With
    `small_box_boost` or teachers there are other divisors too, and this holds about.)

    Args:
        quality: `Losses.quality` of this process.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients]) * quality.clamp(min=1)
    flat = torch.cat([flat, quality[None]])
    process_group.add_up(flat)
    flat = flat[:-1] / flat[-1].clamp(min=1)
    parts = torch.split(flat, [gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))
