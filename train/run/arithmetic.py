"""How nets compute: device, number format, memory layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from lensbox.train.settings import SpeedSettings

Net = TypeVar("Net", bound=torch.nn.Module)


@dataclass(frozen=True)
class Arithmetic:
    """How nets compute on a device, as the settings ask."""

    device: torch.device
    settings: SpeedSettings

    def place(self, net: Net) -> Net:
        """Move a net to the device, in the memory layout of its images."""
        net.to(self.device)
        if self.settings.channels_last:
            # The stub of Module.to lacks this overload.
            net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return net

    def lay_out(self, images: Tensor) -> Tensor:
        """Return images in the memory layout that nets were placed in."""
        if not self.settings.channels_last:
            return images
        return images.contiguous(memory_format=torch.channels_last)

    def autocast(self) -> torch.autocast:
        """Return a context in which nets compute in bfloat16, if the settings ask for it."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.settings.bf16)


def use_fast_kernels() -> None:
    """Let cuDNN choose kernels by timing them, and float32 products on GPUs be rounded to TF32."""
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True


def keep_wide_depthwise_float32(model: torch.nn.Module) -> None:
    """Take depthwise convolutions wider than 3x3 out of CPU autocast.

    oneDNN has no fast bfloat16 gradient for them: with 64 channels, 5x5, stride 2, a batch of 64 took 40 ms,
    against 1.7 ms in float32.
    """
    for module in model.modules():
        if isinstance(module, torch.nn.Conv2d) and module.groups > 1 and module.kernel_size[0] > 3:
            module.forward = _in_float32(module)  # type: ignore[assignment, method-assign]


def _in_float32(conv: torch.nn.Conv2d) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            return torch.nn.Conv2d.forward(conv, x.float()).to(x.dtype)

    return forward
