"""The device that an artifact runs on, and a timer for its work."""

import re
import time
from typing import Any

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


class DeviceTimer:
    """Times what the calling thread asks of a device from here to `stop`.

    On a GPU, what is queued on the current stream, by events in it: the CPU has long gone on by then.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._begun = self._ended = self._now()

    def stop(self) -> None:
        """Ends what is timed."""
        self._ended = self._now()

    def seconds(self) -> float:
        """How long it took. Waits for a GPU that has not come so far."""
        if self._device.type != "cuda":
            return float(self._ended - self._begun)
        self._ended.synchronize()
        return float(self._begun.elapsed_time(self._ended)) / 1000

    def _now(self) -> Any:
        if self._device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event
