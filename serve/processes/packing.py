"""Jobs and answers as bytes, and the pixels of jobs beside them: pickle's own "out-of-band" buffers.

pickle is safe here: both ends are processes of one service, which know each other by a random key.
"""

import copyreg
import io
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch


def packed(value: Any) -> tuple[bytes, list[memoryview]]:
    """A value, and the bytes of its tensors, which are on the CPU, in their order."""
    buffers: list[pickle.PickleBuffer] = []
    stream = io.BytesIO()
    _pickler(stream, buffers.append).dump(value)
    return stream.getvalue(), [buffer.raw() for buffer in buffers]


def packed_whole(value: Any) -> bytes:
    """A value with its tensors, in one."""
    stream = io.BytesIO()
    _pickler(stream).dump(value)
    return stream.getvalue()


def unpacked(data: bytes, buffers: Sequence[memoryview] = ()) -> Any:
    """The value; its tensors lie in `buffers`, without a copy."""
    return pickle.loads(data, buffers=buffers)


def _parts(tensor: torch.Tensor) -> tuple[Any, ...]:
    """How pickle takes a tensor apart: less by half than numpy would write and read for the same bytes."""
    if tensor.dim() == 3 and not tensor.is_contiguous():  # an interleaved image: its rows as they lie
        make, array = _interleaved, tensor.permute(1, 2, 0).contiguous().numpy()
    else:
        make, array = _tensor, tensor.contiguous().numpy()
    return make, (pickle.PickleBuffer(array.data), array.dtype.str, array.shape)


def _tensor(content: Any, dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.from_numpy(np.ndarray(shape, dtype, content))


def _interleaved(content: Any, dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.from_numpy(np.ndarray(shape, dtype, content).transpose(2, 0, 1))


def _pickler(stream: io.BytesIO, on_buffer: Callable[[pickle.PickleBuffer], object] | None = None) -> Any:
    pickler = pickle.Pickler(stream, 5, buffer_callback=on_buffer)
    pickler.dispatch_table = {**copyreg.dispatch_table, torch.Tensor: _parts}
    return pickler
