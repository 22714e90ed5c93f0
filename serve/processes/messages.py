"""The messages between front ends and engines: pickled tuples, numbers and bytes.

Records and tensors are taken apart first: pickle would look up each class by its name, and call a function
for each tensor. The tensors of jobs travel in shared memory, all others in the message.

pickle is safe here: both ends are processes of one service and authenticate with a random key.
"""

import pickle
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from lensbox.runtime import Detections, Photo
from lensbox.runtime.box_loss import BoxPairs, Losses
from lensbox.runtime.detection import concatenate
from lensbox.runtime.images.gpu_jpeg import CodedPhoto
from lensbox.serve.engine.jobs import CanvasDetections, CanvasJob, CodedJob, DetectJob, LossJob, TiledJob

Answer = tuple[int, Any, BaseException | None]  # number of the job; its result, or the error
Request = tuple[int, bytes | None, Sequence[tuple[int, int]], float, float]

_RECORDS: tuple[Any, ...] = (
    *(DetectJob, Photo, CodedJob, CodedPhoto, TiledJob, CanvasJob, LossJob, BoxPairs),
    *(Detections, CanvasDetections, Losses),
)
_NUMBERS = {record: number for number, record in enumerate(_RECORDS)}
_LIST, _DICT, _TENSOR, _INTERLEAVED = -1, -2, -3, -4


def job_message(number: int, data: bytes, blocks: Sequence[tuple[int, int]], deadline: float) -> bytes:
    """Return the message that submits a job, packed as `data`. blocks: offset and size of its buffers."""
    return pickle.dumps((number, data, blocks, time.monotonic(), deadline), 5)


def cancellation(number: int) -> bytes:
    """Return the message that cancels a job."""
    return pickle.dumps((number, None, (), 0.0, 0.0), 5)


def read_request(message: bytes) -> Request:
    """Return number, data (None: the job is cancelled), blocks, time of the request, and deadline."""
    request: Request = pickle.loads(message)
    return request


def packed_answers(answers: Sequence[Answer]) -> bytes:
    """Return the message with these answers. Detections of all jobs travel as one array per output.

    One by one, the small tensors would take longer. All detections of an engine have the same outputs.
    """
    rest = [(job, _plain(result), error) for job, result, error in answers if type(result) is not Detections]
    found = [(job, one) for job, one, _ in answers if type(one) is Detections]
    jobs = [(job, len(one.scores), one.width, one.height) for job, one in found]
    columns = {}
    if found:
        whole = concatenate([one for _, one in found])
        tensors = {"boxes": whole.boxes, "scores": whole.scores, **whole.extras}
        if whole.labels is not None:
            tensors["labels"] = whole.labels
        columns = {name: _array_arguments(tensor) for name, tensor in tensors.items()}
    return pickle.dumps((rest, jobs, columns), 5)


def unpacked_answers(message: bytes) -> list[Answer]:
    """Return the answers of a message, in any order."""
    rest, jobs, columns = pickle.loads(message)
    answers: list[Answer] = [(job, _rebuilt(result), error) for job, result, error in rest]
    arrays = {name: np.ndarray(*column) for name, column in columns.items()}
    begin = 0
    for job, count, width, height in jobs:
        end = begin + count
        parts = {name: torch.from_numpy(array[begin:end]) for name, array in arrays.items()}
        boxes, scores, labels = parts.pop("boxes"), parts.pop("scores"), parts.pop("labels", None)
        answers.append((job, Detections(boxes, scores, labels, parts, width, height), None))
        begin = end
    return answers


def _array_arguments(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return a contiguous tensor as the arguments of `np.ndarray`."""
    array = tensor.numpy()
    return array.shape, array.dtype.str, bytearray(array.data)


def packed(value: Any) -> tuple[bytes, list[memoryview]]:
    """Return a value as bytes, and the bytes of its CPU tensors apart, in their order."""
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(_plain(value), 5, buffer_callback=buffers.append)
    return data, [buffer.raw() for buffer in buffers]


def unpacked(data: bytes, buffers: Sequence[memoryview]) -> Any:
    """Return the value of `packed`. Its tensors share the memory of `buffers`."""
    return _rebuilt(pickle.loads(data, buffers=buffers))


def _plain(value: Any) -> Any:
    """Take a value apart. Each list in the result begins with a number that says what to make of it."""
    kind = type(value)
    if kind is torch.Tensor:
        return _plain_tensor(value)
    if (number := _NUMBERS.get(kind)) is not None:
        fields = value if isinstance(value, tuple) else vars(value).values()
        return [number, *map(_plain, fields)]
    if kind is dict:
        return [_DICT, {name: _plain(one) for name, one in value.items()}]
    return [_LIST, value] if kind is list else value


def _plain_tensor(tensor: torch.Tensor) -> list[Any]:
    if tensor.dim() == 3 and not tensor.is_contiguous():  # an interleaved image: keep its memory layout
        number, array = _INTERLEAVED, tensor.permute(1, 2, 0).contiguous().numpy()
    else:
        number, array = _TENSOR, tensor.contiguous().numpy()
    return [number, array.shape, array.dtype.str, pickle.PickleBuffer(array.data)]


def _rebuilt(plain: Any) -> Any:
    """Return the value that `_plain` has taken apart."""
    if type(plain) is not list:
        return plain
    number, *fields = plain
    if number >= 0:
        # Most fields are numbers: a call for each would take longer than the rest.
        return _RECORDS[number](*[_rebuilt(one) if type(one) is list else one for one in fields])
    if number == _LIST:
        return fields[0]
    if number == _DICT:
        return {name: _rebuilt(one) for name, one in fields[0].items()}
    array = np.ndarray(*fields)
    return torch.from_numpy(array.transpose(2, 0, 1) if number == _INTERLEAVED else array)
