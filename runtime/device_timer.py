"""How long a device takes for a part of its work, without waiting for it meanwhile."""

import time
from typing import Any

import torch


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
