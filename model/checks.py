"""Argument checks with the same messages in eager mode and in TorchScript."""

import torch
from torch import Tensor
from torch.jit import is_scripting  # type: ignore[attr-defined]  # (not in its __all__)


def dtype_name(tensor: Tensor) -> str:
    """Return 'uint8' for torch.uint8 and so on: TorchScript prints a dtype as a bare number."""
    dtype = tensor.dtype
    name = "a dtype that images never have"
    if dtype == torch.uint8:
        name = "uint8"
    elif dtype == torch.float32:
        name = "float32"
    elif dtype == torch.float64:
        name = "float64"
    elif dtype == torch.float16:
        name = "float16"
    elif dtype == torch.bfloat16:
        name = "bfloat16"
    elif dtype == torch.int64:
        name = "int64"
    elif dtype == torch.int32:
        name = "int32"
    elif dtype == torch.bool:
        name = "bool"
    return name


def check_threshold(name: str, value: float) -> None:
    """Raise ValueError unless 0 <= value <= 1; NaN fails. Skip during torch.export: values are unknown."""
    # Two `if`s: TorchScript skips compiling a block only if `is_scripting()` is its whole condition.
    if not is_scripting():  # noqa: SIM102
        if torch.compiler.is_exporting():
            return
    if not (value >= 0.0 and value <= 1.0):
        raise ValueError(f"{name} must be between 0 and 1, got {value}")
