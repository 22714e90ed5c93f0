"""On which device an artifact runs."""

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
