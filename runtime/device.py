"""On which device an artifact runs, and how exactly."""

import torch

from lensbox.errors import DeviceError


def choose_device(name: str) -> torch.device:
    """The device of "cpu", "cuda" or "auto". Raises DeviceError for "cuda" without a usable GPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        reason = (
            "this torch was built without CUDA"
            if torch.version.cuda is None
            else f"this torch was built for CUDA {torch.version.cuda}, but no usable GPU was found"
        )
        raise DeviceError(f"device must be usable, got 'cuda' with torch {torch.__version__}: {reason}")
    return torch.device(name)


def use_full_float32() -> None:
    """Makes this process compute float32 convolutions and matrix products on GPUs without TF32.

    Tensor cores would round what they multiply to TF32: where two boxes nearly tie, NMS could then keep
    another one than on the CPU.
    """
    # The older of torch's two interfaces: after `fp32_precision`, the newer, reading the older one raises.
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
