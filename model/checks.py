"""Argument checks with the same messages in eager mode and in TorchScript."""

import torch
from torch import Tensor
from torch.jit import is_scripting  # type: ignore[attr-defined]  # (not in its __all__)


def dtype_name(tensor: Tensor) -> str:
    """Return 'float32' for torch.float32 and so on: TorchScript prints a dtype as a number."""
    for dtype, name in (
        (torch.float32, "float32"),
        (torch.float64, "float64"),
        (torch.float16, "float16"),
        (torch.bfloat16, "bfloat16"),
        (torch.int64, "int64"),
        (torch.int32, "int32"),
        (torch.bool, "bool"),
    ):
        if tensor.dtype == dtype:
            return name
    return "another dtype"


def check_threshold(name: str, value: float) -> None:
    """Raise ValueError unless 0 <= value <= 1; NaN fails. Skip during torch.export: values are unknown."""
    # Two `if`s: TorchScript skips compiling a block only if `is_scripting()` is its whole condition.
    if not is_scripting():  # noqa: SIM102
        if torch.compiler.is_exporting():
            return
    if not (value >= 0.0 and value <= 1.0):
        raise ValueError(f"{name} must be between 0 and 1, got {value}")
