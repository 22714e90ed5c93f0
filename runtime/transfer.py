"""Between the CPU and a GPU in as few copies as possible: each costs more than its bytes."""

import torch
from torch import Tensor

_ALIGNMENT = 256  # bytes; also that of torch's own memory on GPUs


def to_device(tensors: list[Tensor], device: torch.device) -> list[Tensor]:
    """The same tensors on a device.

    On a GPU those from the CPU come in one copy, from one buffer in pinned memory, without waiting for it. An
    image [C, H, W] over interleaved memory stays interleaved.
    """
    if device.type != "cuda" or all(tensor.is_cuda for tensor in tensors):
        return [tensor.to(device) for tensor in tensors]
    moved = [tensor for tensor in tensors if not tensor.is_cuda]
    begins, end = [], 0
    for tensor in moved:
        begins.append(end)
        end += -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT
    # torch keeps pinned memory for later calls, and reuses it only once the copy is over.
    staging = torch.empty(end, dtype=torch.uint8, pin_memory=True)
    for tensor, begin in zip(moved, begins, strict=True):
        _laid_out_like(tensor, staging, begin).copy_(tensor)
    on_device = staging.to(device, non_blocking=True)
    views = iter(
        [_laid_out_like(tensor, on_device, begin) for tensor, begin in zip(moved, begins, strict=True)]
    )
    return [tensor.to(device) if tensor.is_cuda else next(views) for tensor in tensors]


def _laid_out_like(tensor: Tensor, buffer: Tensor, begin: int) -> Tensor:
    """A tensor of the same shape and dtype in a buffer of bytes."""
    memory = buffer[begin : begin + tensor.nbytes].view(tensor.dtype)
    if tensor.dim() == 3 and tensor.permute(1, 2, 0).is_contiguous():
        channels, height, width = tensor.shape
        return memory.view(height, width, channels).permute(2, 0, 1)
    return memory.view(tensor.shape)


def to_host(boxes: Tensor, scores: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, list[int]]:
    """What was found in a batch, in one copy to the CPU: float32 [B, K, 4], float32 [B, K], and B numbers."""
    if boxes.is_cpu:
        return boxes, scores, counts.tolist()
    slots = scores.shape[1]
    # Counts are at most `slots`, so float32 holds them.
    packed = torch.cat([boxes.flatten(1), scores, counts[:, None].to(scores)], 1).cpu()
    found = packed[:, : 4 * slots].unflatten(1, (slots, 4))
    return found, packed[:, 4 * slots : 5 * slots], [int(count) for count in packed[:, -1].tolist()]
