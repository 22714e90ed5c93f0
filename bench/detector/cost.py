"""What a network costs, whatever runs it."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode


@dataclass(frozen=True)
class Cost:
    """multiply_accumulates: of convolutions and matrix products, for the images counted with."""

    parameters: int
    multiply_accumulates: int


def network_cost(network: nn.Module, images: Tensor) -> Cost:
    """Counts one forward pass of `images`."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(images)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    # Two floating-point operations make one multiply-accumulate.
    return Cost(parameters, counter.get_total_flops() // 2)
