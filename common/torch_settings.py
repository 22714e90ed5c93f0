"""Settings of torch that a program may have made, and that must not change what Lensbox computes."""

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def torch_defaults() -> Iterator[None]:
    """Use torch's own default dtype and device within the context, no autocast and no anomaly detection.

    Another default dtype is changed for the whole process.
    """
    dtype, device = torch.get_default_dtype(), torch.get_default_device()
    if dtype != torch.float32:
        torch.set_default_dtype(torch.float32)
    try:
        with (
            contextlib.nullcontext() if device.type == "cpu" else torch.device("cpu"),
            torch.autograd.set_detect_anomaly(False),
            without_autocast(),
        ):
            yield
    finally:
        if dtype != torch.float32:
            torch.set_default_dtype(dtype)


@contextlib.contextmanager
def without_autocast() -> Iterator[None]:
    """Switch autocast off within the context: it would move the boxes."""
    with contextlib.ExitStack() as stack:
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield
