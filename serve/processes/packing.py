"""Jobs and answers as bytes, and the pixels of jobs beside them: pickle's own "out-of-band" buffers.

pickle is safe here: both ends are processes of one service, which know each other by a random key.
"""

import io
import pickle
from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray


def packed(value: Any) -> tuple[bytes, list[memoryview]]:
    """A value, and the bytes of its tensors, which are on the CPU, in their order."""
    buffers: list[pickle.PickleBuffer] = []
    stream = io.BytesIO()
    _Pickler(stream, 5, buffer_callback=buffers.append).dump(value)
    return stream.getvalue(), [buffer.raw() for buffer in buffers]


def packed_whole(value: Any) -> bytes:
    """A value with its tensors, in one."""
    stream = io.BytesIO()
    _Pickler(stream, 5).dump(value)
    return stream.getvalue()


def unpacked(data: bytes, buffers: Sequence[memoryview] = ()) -> Any:
    """The value; its tensors lie in `buffers`, without a copy."""
    return pickle.loads(data, buffers=buffers)


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return NotImplemented
        if value.dim() == 3 and not value.is_contiguous():  # an interleaved image: its rows as they lie
            return _interleaved, (value.permute(1, 2, 0).contiguous().numpy(),)
        return torch.from_numpy, (value.contiguous().numpy(),)


def _interleaved(array: NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(array).permute(2, 0, 1)
