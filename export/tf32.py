"""TF32, NVIDIA's rounding of convolution operands, imitated on the CPU."""

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)


def tf32_copy(module: Module) -> Module:
    """A copy whose convolutions round weights and inputs to TF32 and sum in float32, as tensor cores do."""
    module = copy.deepcopy(module)
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            layer.weight.data = round_to_tf32(layer.weight.data)
            layer.register_forward_pre_hook(_round_input)
    return module


def round_to_tf32(x: Tensor) -> Tensor:
    """The nearest TF32 number of each finite float32: 10 of 23 mantissa bits stay, ties round away from 0."""
    return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def _round_input(layer: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
    return (round_to_tf32(inputs[0]),)
