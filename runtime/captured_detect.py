"""`detect` as CUDA graphs: one launch instead of a hundred."""

import threading
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

Found = tuple[Tensor, Tensor, Tensor]  # boxes, scores, counts

# cuDNN and cuBLAS make their plans and workspaces in first calls, which no graph can hold.
_WARM_CALLS = 3


class _Graph(NamedTuple):
    graph: torch.cuda.CUDAGraph
    canvases: Tensor
    found: Found


class CapturedDetect:
    """Graphs of `detect` for some batch sizes, with the thresholds it was captured with: they are numbers of
    the host, and become part of a graph.

    Graphs share their memory, so one runs at a time, whichever thread or stream asks.
    """

    def __init__(self) -> None:
        self._graphs: dict[int, _Graph] = {}
        self._lock = threading.Lock()
        self._pool = torch.cuda.graph_pool_handle()
        self._free = torch.cuda.Event()  # when the graph that ran last has been read out

    def capture(self, detect: Callable[[Tensor], Found], canvas: Tensor, batch_sizes: Iterable[int]) -> None:
        """Captures `detect` for batches of canvases like `canvas`, uint8 [c, h, w], on the device."""
        with self._lock, torch.cuda.device(canvas.device):
            # The largest first: the others fit into its memory.
            for size in sorted(set(batch_sizes) - self._graphs.keys(), reverse=True):
                graph = self._captured(detect, canvas.repeat(size, 1, 1, 1))
                self._graphs = {**self._graphs, size: graph}  # others may be looking through the old one

    def __call__(self, canvases: Tensor) -> Found | None:
        """What `detect` finds in canvases on the device, or None if there is no graph for such a batch.

        A batch is filled up to the next captured size. The results are the caller's own.
        """
        size = len(canvases)
        graphs = self._graphs
        captured = min((captured for captured in graphs if captured >= size), default=None)
        if captured is None or size == 0:
            return None
        graph, inputs, found = graphs[captured]
        if canvases.dtype != inputs.dtype or canvases.shape[1:] != inputs.shape[1:]:
            return None  # for `detect` to complain about
        with self._lock, torch.cuda.device(inputs.device):
            stream = torch.cuda.current_stream()
            stream.wait_event(self._free)
            inputs[:size].copy_(canvases)
            graph.replay()
            boxes, scores, counts = (tensor[:size].clone() for tensor in found)
            self._free.record(stream)
        return boxes, scores, counts

    def _captured(self, detect: Callable[[Tensor], Found], canvases: Tensor) -> _Graph:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_CALLS):
                detect(canvases)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # Of this thread alone: others may use the GPU meanwhile.
        with torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"):
            found = detect(canvases)
        return _Graph(graph, canvases, found)
