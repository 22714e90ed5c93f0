"""The artifact without a service: the most that the same file gives on the same cores."""

import statistics
import time
from collections.abc import Callable
from functools import partial

import torch

from lensbox.artifact.metadata import Canvas
from lensbox.common.decode import Decode
from lensbox.common.machine import keep_freed_memory
from lensbox.runtime import load_artifact
from lensbox.runtime.device import LARGEST_ON_GPU
from lensbox.serve.engine.devices import batch_sizes

_ON_CPU = (1, 2, 4, 8, 16)
_ON_GPU = (1, 32, 64, 256)


class InProcess:
    """A loaded artifact, on a GPU with CUDA graphs of the service's batches and of those that are timed."""

    def __init__(self, artifact: str, device: str, threads: int, file: bytes, decode: Decode) -> None:
        torch.set_num_threads(threads)
        if device == "cpu":
            keep_freed_memory()  # as the service does
        self._artifact = load_artifact(artifact, torch.device(device))
        self._file, self._decode = file, decode
        self._sizes = _ON_CPU if device == "cpu" else _ON_GPU
        self._artifact.capture({*self._sizes, *batch_sizes(LARGEST_ON_GPU)})

    @property
    def canvas(self) -> Canvas:
        """Return the detector's canvas."""
        return self._artifact.metadata.canvas

    def best_batch(self, seconds: float, say: Callable[[str], None]) -> int:
        """Time each batch size for so many seconds, and return the one with the highest rate."""
        rates = {size: self.file_rate(size, seconds) for size in self._sizes}
        for size, rate in rates.items():
            say(f"in process, files in batches of {size}: {rate:.1f} images/s")
        return max(rates, key=lambda size: rates[size])

    def file_rate(self, batch: int, seconds: float) -> float:
        """Return images per second, from files that are decoded in threads."""
        files = [self._file] * (4 * batch)
        return _rate(partial(self._detect_files, files, batch), len(files), seconds)

    def photo_seconds(self, seconds: float) -> float:
        """Return the median time of one photograph, from its file to its boxes."""
        taken: list[float] = []
        end = time.perf_counter() + seconds
        while not taken or time.perf_counter() < end:
            begin = time.perf_counter()
            self._artifact.detect_image(self._artifact.read_photo(self._file))
            taken.append(time.perf_counter() - begin)
        return statistics.median(taken)

    def canvas_rate(self, seconds: float) -> float:
        """Return canvases per second, in the largest batches, from the CPU and with boxes back on it."""
        size = self._sizes[-1]
        shape = [size, self.canvas.channels, self.canvas.height, self.canvas.width]
        canvases = torch.zeros(shape, dtype=torch.uint8)
        return _rate(lambda: self._artifact.detect(canvases)[0].cpu(), size, seconds)

    def _detect_files(self, files: list[bytes], batch: int) -> None:
        for _ in self._artifact.detect_files(files, batch, decode=self._decode):
            pass


def _rate(call: Callable[[], object], images: int, seconds: float) -> float:
    """Return images per second of a call that takes so many."""
    call()
    started, count = time.perf_counter(), 0
    while not count or time.perf_counter() < started + seconds:
        call()
        count += 1
    return count * images / (time.perf_counter() - started)
