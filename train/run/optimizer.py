"""Schedule, AdamW, and the weight average.

Progress goes from 0 to 1 over a run.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lensbox.train.settings import TrainConfig


def learning_rate(progress: float, config: TrainConfig) -> float:
    """Return the rate: linear warm-up, then a cosine down to the final rate."""
    if progress < config.warmup_progress:
        return config.learning_rate * max(progress / config.warmup_progress, 1e-3)
    share = (progress - config.warmup_progress) / (1 - config.warmup_progress)
    cosine = 0.5 * (1 + math.cos(math.pi * share))
    return config.final_learning_rate + (config.learning_rate - config.final_learning_rate) * cosine


def ema_weight(step: int, config: TrainConfig) -> float:
    """Return the weight of the newest parameters in the average: large at first, to forget the start."""
    return 1 - min(config.ema_decay, (1 + step) / (config.ema_warmup + step))


def mosaic_on(progress: float, config: TrainConfig) -> float:
    """Return 1 while mosaics are drawn, 0 in the last part of the run."""
    return 1.0 if progress < 1 - config.plain_progress else 0.0


def make_optimizer(
    parameters: Sequence[Tensor], rate: Tensor, weight_decay: float, capturable: bool
) -> torch.optim.AdamW:
    """Return AdamW with weight decay on parameters of more than one dimension.

    rate: scalar tensor with the learning rate, on the device of the parameters. capturable: steps will be
    captured into a CUDA graph.
    """
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=rate, fused=True, capturable=capturable)


def load_moments(optimizer: torch.optim.AdamW, state: dict[str, Any], rate: Tensor) -> None:
    """Load the moments and step counts of a `state_dict`. Rates, weight decay and all other options stay
    what the configuration made them: a resumed run may have changed them."""
    options = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({**state, "param_groups": options})
    for group in optimizer.param_groups:
        group["lr"] = rate  # loading put a copy in its place


@torch.no_grad()
def move_average(averaged: list[Tensor], learned: list[Tensor], weight: Tensor) -> None:
    """Add weight · (learned - averaged) to the average, batch norm's statistics included."""
    difference = torch._foreach_sub(learned, averaged)
    torch._foreach_mul_(difference, weight)
    torch._foreach_add_(averaged, difference)


def floating_point_state(model: torch.nn.Module) -> list[Tensor]:
    """Return weights and statistics, but not batch norm's counters."""
    return [value for value in model.state_dict(keep_vars=True).values() if value.is_floating_point()]
