"""Pack the boxes of many images into one buffer, so that one copy moves a batch of targets to the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_ALIGNMENT = 16  # bytes: kernels load a box of float32 at once
_OFFSET_BYTES = 8  # int64


@dataclass(frozen=True)
class PackedTargets:
    """Rows of B images laid end to end, as `jagged_giou_loss` takes them.

    `buffer` holds the offsets, then the rows; `values` and `offsets` are views of it, so `to` and
    `pin_memory` move both at once.

    buffer: uint8. images: B. columns: numbers in a row; 4 for boxes, more for what a user wants to carry
    along. dtype: of the rows.
    """

    buffer: Tensor
    images: int
    columns: int
    dtype: torch.dtype

    @staticmethod
    def pack(rows: Sequence[Tensor]) -> PackedTargets:
        """Pack the rows of each image, `[n, columns]` of one dtype on the CPU, end to end.

        Raise ValueError for no image at all, and for an image whose rows have another shape or dtype than the
        first's.
        """
        if len(rows) == 0:
            raise ValueError("rows must hold at least one image, got none")
        columns, dtype = (rows[0].shape[-1] if rows[0].dim() > 0 else 0), rows[0].dtype
        if columns == 0:
            raise ValueError(
                f"rows must be [n, columns] with at least one column, got {list(rows[0].shape)} for image 0"
            )
        for image, tensor in enumerate(rows):
            if tensor.dim() != 2 or tensor.shape[1] != columns or tensor.dtype != dtype:
                raise ValueError(
                    f"rows must all be [n, {columns}] of {dtype}, got {list(tensor.shape)} of {tensor.dtype} "
                    f"for image {image}"
                )
        counts = torch.tensor([0, *(len(tensor) for tensor in rows)], device="cpu")
        size = _values_start(len(rows)) + int(counts.sum()) * columns * dtype.itemsize
        packed = PackedTargets(torch.empty(size, dtype=torch.uint8, device="cpu"), len(rows), columns, dtype)
        torch.cumsum(counts, 0, out=packed.offsets)
        torch.cat(list(rows), out=packed.values)
        return packed

    @property
    def offsets(self) -> Tensor:
        """int64 [B + 1]: image i has the rows offsets[i] to offsets[i + 1]."""
        return self.buffer[: _OFFSET_BYTES * (self.images + 1)].view(torch.int64)

    @property
    def values(self) -> Tensor:
        """[N, columns]: the rows of all images."""
        return self.buffer[_values_start(self.images) :].view(self.dtype).view(-1, self.columns)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> PackedTargets:
        """Copy everything at once; asynchronously if pinned and `non_blocking`."""
        buffer = self.buffer.to(device, non_blocking=non_blocking)
        return PackedTargets(buffer, self.images, self.columns, self.dtype)

    def pin_memory(self) -> PackedTargets:
        """Return a copy in page-locked memory; a DataLoader with pin_memory=True calls this."""
        return PackedTargets(self.buffer.pin_memory(), self.images, self.columns, self.dtype)


def collate_packed(samples: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, PackedTargets]:
    """Collate function for a DataLoader over samples (image, boxes [n, 4]): images stacked, boxes packed."""
    images, boxes = zip(*samples, strict=True)
    return torch.stack(list(images)), PackedTargets.pack(boxes)


def _values_start(images: int) -> int:
    offset_bytes = _OFFSET_BYTES * (images + 1)
    return (offset_bytes + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
