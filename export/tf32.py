"""TF32, NVIDIA's rounding of the operands of convolutions and matrix products: torch's switch for GPUs, and
an imitation on the CPU."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

TF32_MANTISSA_BITS = 10  # of float32's 23

# The positions of what is multiplied. In inference mode torch shows conv2d and the like, which it otherwise
# turns into convolution before.
_OPERANDS = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution", "linear", "matmul", "mm", "bmm"), (0, 1)),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), (0, 1)),
    **dict.fromkeys(("addmm", "baddbmm", "addbmm"), (1, 2)),
}


@contextlib.contextmanager
def tf32_switch(on: bool) -> Iterator[None]:
    """Whether cuDNN and cuBLAS may use it, in the whole process."""
    convolutions, products = torch.backends.cudnn, torch.backends.cuda.matmul
    before = convolutions.allow_tf32, products.allow_tf32
    convolutions.allow_tf32 = products.allow_tf32 = on
    try:
        yield
    finally:
        convolutions.allow_tf32, products.allow_tf32 = before


class OperandRounding(TorchDispatchMode):
    """While active, products round their float32 operands and sum in float32, as tensor cores do with TF32.

    mantissa_bits: those that stay. Each one fewer doubles the rounding errors.
    """

    def __init__(self, mantissa_bits: int = TF32_MANTISSA_BITS) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.mantissa_bits = mantissa_bits

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        arguments = list(args)
        if function.namespace == "aten":
            for position in _OPERANDS.get(function.overloadpacket.__name__, ()):
                if arguments[position].dtype == torch.float32:
                    arguments[position] = round_mantissa(arguments[position], self.mantissa_bits)
        return function(*arguments, **(kwargs or {}))


def round_mantissa(x: Tensor, bits: int = TF32_MANTISSA_BITS) -> Tensor:
    """The nearest number with `bits` bits of mantissa of each finite float32; ties round away from 0."""
    dropped = 23 - bits
    mask = (1 << dropped) - 1
    return ((x.view(torch.int32) + (1 << (dropped - 1))) & ~mask).view(torch.float32)
