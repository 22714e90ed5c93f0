"""On which device an artifact runs."""

import re

import torch

from lensbox.common.errors import DeviceError


def choose_device(name: str) -> torch.device:
    """The device of "cpu", "cuda", "cuda:1" or "auto".

    Raises DeviceError for another name, and for a GPU that cannot be used.
    """
    device = named_device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise DeviceError(f"device must be usable, got {name!r} with {why_no_gpu()}")
    if device.type == "cuda" and device.index is not None and device.index >= torch.cuda.device_count():
        found = torch.cuda.device_count()
        raise DeviceError(f"device must be usable, got {name!r} where torch finds {found} of them")
    return device


def why_no_gpu() -> str:
    """Where torch sees no GPU: its version, and whether that or the machine is the reason."""
    version = f"torch {torch.__version__}"
    if torch.version.cuda is None:
        return f"{version}: this torch was built without CUDA"
    return f"{version}: this torch was built for CUDA {torch.version.cuda}, but no usable GPU was found"


def named_device(name: str) -> torch.device:
    """The same, whether it can be used or not; "auto" is one that can. Raises DeviceError for other names."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not re.fullmatch(r"cpu|cuda(:\d{1,3})?", name):
        raise DeviceError(f"device must be cpu, cuda, cuda:N or auto, got {name!r}")
    return torch.device(name)
