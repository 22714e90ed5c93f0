"""Copy tensors between the CPU and a GPU in as few copies as possible: the latency of a copy dominates.

Calls of torch are few, too: each one releases Python's lock, for which threads that decode images compete.
"""

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_ALIGNMENT = 256  # bytes; torch's GPU memory has the same alignment
_LARGE = 4 << 20  # bytes from which torch copies faster: with 16 threads 9 MiB in 0.07 ms, numpy in 0.63 ms


def to_device(tensors: list[Tensor], device: torch.device) -> list[Tensor]:
    """Return the tensors on a device.

    Tensors from the CPU are copied to a GPU in one asynchronous copy from a buffer in pinned memory. An image
    [C, H, W] in interleaved memory stays interleaved.
    """
    if device.type != "cuda":
        return [tensor.to(device) for tensor in tensors]
    if all(tensor.is_cuda for tensor in tensors):
        number = torch.cuda.current_device() if device.index is None else device.index
        # A call of `to` takes longer than this comparison.
        return [tensor if tensor.get_device() == number else tensor.to(device) for tensor in tensors]
    moved = [tensor for tensor in tensors if not tensor.is_cuda]
    layouts = [_layout(tensor) for tensor in moved]
    # torch caches pinned memory, and reuses it only after the copy has ended.
    staging = torch.empty(
        sum(layout.size for layout in layouts), dtype=torch.uint8, device="cpu", pin_memory=True
    )
    _fill(staging, moved, layouts)
    views = iter(_views(staging.to(device, non_blocking=True), layouts))
    return [tensor.to(device) if tensor.is_cuda else next(views) for tensor in tensors]


class _Layout(NamedTuple):
    """The place of a tensor in a buffer. strides: in elements; size: in bytes, a multiple of _ALIGNMENT."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    size: int


def _layout(tensor: Tensor) -> _Layout:
    """Return the strides of a dense copy, interleaved if the tensor is an interleaved image [C, H, W]."""
    shape, size = tuple(tensor.shape), -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT
    if len(shape) == 3:
        channels, _, width = shape
        strides: tuple[int, ...] = (1, width * channels, channels)
        if tensor.stride() == strides:
            return _Layout(tensor.dtype, shape, strides, size)
    strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return _Layout(tensor.dtype, shape, strides, size)


def _fill(buffer: Tensor, tensors: list[Tensor], layouts: list[_Layout]) -> None:
    """Copy tensors into a buffer of bytes, one behind the other."""
    memory, begin = buffer.numpy(), 0
    for tensor, (dtype, shape, strides, size) in zip(tensors, layouts, strict=True):
        array = tensor.numpy()
        in_bytes = tuple(stride * dtype.itemsize for stride in strides)
        place = np.ndarray(shape, array.dtype, memory, begin, in_bytes)
        if size < _LARGE:
            place[...] = array
        else:
            torch.from_numpy(place).copy_(tensor)
        begin += size


def _views(buffer: Tensor, layouts: list[_Layout]) -> list[Tensor]:
    """Return the tensors in a buffer of bytes. Consecutive tensors of one layout take one call of torch."""
    views: list[Tensor] = []
    begin = 0
    for (dtype, shape, strides, size), alike in groupby(layouts):
        count = len(list(alike))
        typed = buffer if dtype == buffer.dtype else buffer.view(dtype)
        apart = size // dtype.itemsize
        views += typed.as_strided((count, *shape), (apart, *strides), begin // dtype.itemsize).unbind()
        begin += count * size
    return views


class HostCopy(NamedTuple):
    """Copies of tensors on the CPU. end: of a GPU's work on them; None if they are complete."""

    copies: Sequence[Tensor]
    end: torch.cuda.Event | None

    def wait(self) -> list[NDArray[Any]]:
        """Wait for a GPU; return the copies as arrays."""
        if self.end is not None:
            self.end.synchronize()
        return [copy.numpy() for copy in self.copies]


def to_host(tensors: Sequence[Tensor]) -> HostCopy:
    """Begin to copy tensors of one device to the CPU, after what its current stream has been given.

    The copies are in pinned memory: a copy to other memory keeps all other threads from calling CUDA.
    """
    if all(tensor.is_cpu for tensor in tensors):
        return HostCopy(tensors, None)
    copies = [torch.empty(one.shape, dtype=one.dtype, device="cpu", pin_memory=True) for one in tensors]
    for copy, tensor in zip(copies, tensors, strict=True):
        copy.copy_(tensor, non_blocking=True)
    end = torch.cuda.Event()
    end.record(torch.cuda.current_stream(tensors[0].device))
    return HostCopy(copies, end)


def packed(boxes: Tensor, scores: Tensor, counts: Tensor) -> Tensor:
    """Return detections as one tensor, float32 [B, 5 K + 1], to copy to the CPU.

    boxes: float32 [B, K, 4]. scores: float32 [B, K]. counts: int [B], at most K, so float32 holds them.
    """
    return torch.cat([boxes.flatten(1), scores, counts[:, None].to(scores)], 1)


def unpacked(detections: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32], list[int]]:
    """Return boxes, scores and counts of `packed`."""
    slots = detections.shape[1] // 5
    boxes = detections[:, : 4 * slots].reshape(-1, slots, 4)
    return boxes, detections[:, 4 * slots : 5 * slots], detections[:, -1].astype(int).tolist()
