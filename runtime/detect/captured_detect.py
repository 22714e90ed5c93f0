"""`detect` as CUDA graphs: one launch instead of a hundred."""

import contextlib
import gc
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from lensbox.runtime.detect.transfer import HostCopy, to_host

Thresholds = tuple[float, float]  # of score and IoU
Outputs = tuple[Tensor, ...]  # boxes, scores, counts, and further outputs
Copied = TypeVar("Copied")

# Warm-up: cuDNN and cuBLAS create plans and workspaces in their first calls, which cannot be captured.
_WARM_CALLS = 3

_capturing = threading.Lock()  # torch can capture one graph at a time in a process


class _Graph(NamedTuple):
    """A graph with its inputs and outputs. found: in pixels of the canvases; restored: of the photographs."""

    graph: torch.cuda.CUDAGraph
    canvases: Tensor
    geometry: Tensor
    found: Outputs
    restored: Outputs


class CapturedDetect:
    """CUDA graphs of a detector's `detect`, one per batch size and pair of thresholds.

    A graph holds the thresholds as constants. Graphs share their memory, so only one of them runs at a time.
    restore: returns the outputs for photographs, from the outputs of `detect` and a geometry, [B, 6].
    """

    def __init__(
        self,
        detect: Callable[[Tensor, float, float], Outputs],
        restore: Callable[[Outputs, Tensor], Outputs],
        device: torch.device,
    ) -> None:
        self._detect = detect
        self._restore = restore
        self._graphs: dict[Thresholds, dict[int, _Graph]] = {}
        self._lock = threading.Lock()
        # One stream for all captures: torch keeps memory apart by stream.
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()
        self._free = torch.cuda.Event()  # the outputs of the last graph have been copied

    def capture(
        self, canvas: Tensor, geometry: Tensor, batch_sizes: Iterable[int], thresholds: Thresholds
    ) -> None:
        """Capture `detect` and `restore` for batches of canvases like `canvas`, uint8 [c, h, w], on the
        device. geometry: float32 [6]."""
        with _capturing, self._lock, without_collection(), torch.cuda.device(canvas.device):
            graphs = dict(self._graphs.get(thresholds, {}))
            # The largest batch first: smaller batches fit into its memory.
            for size in sorted(set(batch_sizes) - graphs.keys(), reverse=True):
                graphs[size] = self._captured(
                    canvas.repeat(size, 1, 1, 1), geometry.repeat(size, 1), thresholds
                )
            # A new dict: calls read the old one without the lock.
            self._graphs[thresholds] = graphs

    def __call__(self, canvases: Tensor, thresholds: Thresholds) -> Outputs | None:
        """Return the detections in canvases on the device, or None if there is no graph for this batch size.

        A batch is padded to the next captured size.
        """
        return self._replay(canvases, None, thresholds, _clones)

    def of_photos(self, canvases: Tensor, geometry: Tensor, thresholds: Thresholds) -> HostCopy | None:
        """Begin to copy the outputs of `restore` to the CPU. geometry: of the photographs, float32 [B, 6]."""
        return self._replay(canvases, geometry, thresholds, to_host)

    def _replay(
        self,
        canvases: Tensor,
        geometry: Tensor | None,
        thresholds: Thresholds,
        copy: Callable[[list[Tensor]], Copied],
    ) -> Copied | None:
        graphs = self._graphs.get(thresholds, {})
        size = canvases.shape[0] if canvases.dim() == 4 else 0
        captured = min((captured for captured in graphs if captured >= size), default=None)
        if captured is None or size == 0:
            return None
        graph, inputs, places, found, restored = graphs[captured]
        if canvases.dtype != inputs.dtype or canvases.shape[1:] != inputs.shape[1:]:
            return None  # `detect` raises the error
        with self._lock, torch.cuda.device(inputs.device):
            stream = torch.cuda.current_stream()
            stream.wait_event(self._free)
            inputs[:size].copy_(canvases)
            if geometry is not None:
                places[:size].copy_(geometry)
                found = restored
            graph.replay()
            results = copy([tensor[:size] for tensor in found])
            self._free.record(stream)
        return results

    def _captured(self, canvases: Tensor, geometry: Tensor, thresholds: Thresholds) -> _Graph:
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for _ in range(_WARM_CALLS):
                self._restore(self._detect(canvases, *thresholds), geometry)
        graph = torch.cuda.CUDAGraph()
        # thread_local: other threads may use the GPU meanwhile.
        with torch.cuda.graph(graph, self._pool, self._stream, capture_error_mode="thread_local"):
            found = self._detect(canvases, *thresholds)
            restored = self._restore(found, geometry)
        return _Graph(graph, canvases, geometry, found, restored)


def _clones(tensors: list[Tensor]) -> Outputs:
    return tuple(tensor.clone() for tensor in tensors)


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Collect garbage now, and not within the context: freeing the graphs of an artifact that nobody uses any
    more, in the thread that captures, would invalidate the capture."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
