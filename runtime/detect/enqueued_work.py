"""The work that a detector has given to a GPU: its memory may be freed only after that work.

torch keeps freed memory for the stream that allocated it. If another stream still reads the memory, its next
owner overwrites what this stream reads.
"""

import contextlib
import threading

import torch


class EnqueuedWork:
    """The last work on each stream of a device. Does nothing on a CPU. Thread-safe."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._ends: dict[int, torch.cuda.Event] = {}

    def note(self) -> None:
        """Note what the current stream has been given until now.

        Work that is captured is not noted: who owns the graph keeps the artifact.
        """
        if self._device.type != "cuda":
            return
        with torch.cuda.device(self._device):
            if torch.cuda.is_current_stream_capturing():
                return
            stream = torch.cuda.current_stream()
            with self._lock:
                self._ends.setdefault(stream.cuda_stream, torch.cuda.Event()).record(stream)

    def wait(self) -> None:
        """Wait until the GPU has done the work. A failed GPU, and a forked child's, do no work."""
        for end in self._ends.values():
            with contextlib.suppress(RuntimeError):
                end.synchronize()
