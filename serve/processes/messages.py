"""The messages between front ends and engines: pickled tuples, numbers and bytes.

Records and tensors are taken apart first: pickle would look up each class by its name, and call a function
for each tensor. Tensors and files of jobs travel in shared memory, all others in the message.

pickle is safe here: both ends are processes of one service and authenticate with a random key. Errors travel
as text, because not every exception can be pickled.
"""

import pickle
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from lensbox.runtime import Photo
from lensbox.runtime.detect.detection import DetectionArrays
from lensbox.runtime.images.gpu_jpeg import CodedPhoto, file_tensor
from lensbox.serve.engine.jobs import (
    CanvasJob,
    CodedJob,
    DetectJob,
    Loss,
    LossJob,
    TiledJob,
)
from lensbox.serve.errors import DeadlineError, NotReadyError, OverloadError

Answer = tuple[int, Any, BaseException | None]  # number of the job; its result, or the error
Request = tuple[int, Any, Sequence[tuple[int, int]], float, float]


class Told(NamedTuple):
    """What each message of an engine tells: its jobs, queued or running, and how many more it takes now."""

    jobs: int
    room: int


# The fields of each record, in the order in which they travel.
_FIELDS: dict[Any, tuple[str, ...]] = {
    DetectJob: ("photo", "score_threshold", "iou_threshold"),
    CodedJob: ("photo", "score_threshold", "iou_threshold"),
    TiledJob: ("photo", "windows", "score_threshold", "iou_threshold"),
    CanvasJob: ("canvases", "score_threshold", "iou_threshold"),
    LossJob: ("predictions", "targets", "gradient"),
    Photo: ("pixels", "width", "height", "window"),
    CodedPhoto: ("source", "file", "orientation", "width", "height"),
    Loss: ("value", "gradient"),
}
_RECORDS = list(_FIELDS.items())
_NUMBERS = {record: (number, attrgetter(*fields)) for number, (record, fields) in enumerate(_RECORDS)}
_ERRORS = (OverloadError, NotReadyError, DeadlineError)  # any other is a defect
_KINDS = (*_ERRORS, RuntimeError)
_LIST, _DICT, _TENSOR, _INTERLEAVED, _BYTES = -1, -2, -3, -4, -5


def job_message(
    number: int, plain: Any = None, blocks: Sequence[tuple[int, int]] = (), deadline: float = 0.0
) -> bytes:
    """Return the message that submits a job, taken apart; with the number alone, the one that cancels it.

    blocks: offset and size of its buffers.
    """
    return pickle.dumps((number, plain, blocks, time.monotonic(), deadline), 5)


def read_request(message: bytes) -> Request:
    """Return number, job (taken apart; None: it is cancelled), blocks, time of the request, and deadline."""
    request: Request = pickle.loads(message)
    return request


def packed_answers(answers: Sequence[Answer], told: Told) -> bytes:
    """Return the message with these answers. Detections of all jobs travel as one array per output.

    One by one, the small arrays would take longer. All detections of an engine have the same outputs.
    """
    found = [(job, one) for job, one, _ in answers if type(one) is DetectionArrays]
    jobs = [(job, len(one.scores), one.width, one.height) for job, one in found]
    columns = _joined([one for _, one in found]) if found else {}
    buffers: list[memoryview] = []
    rest = [
        (job, taken_apart(one, buffers), error if error is None else _plain_error(error))
        for job, one, error in answers
        if type(one) is not DetectionArrays
    ]
    return pickle.dumps((tuple(told), jobs, columns, rest, list(map(bytearray, buffers))), 5)


def unpacked_answers(message: bytes) -> tuple[list[Answer], Told]:
    """Return the answers of a message, in any order, and what the engine tells of its queue."""
    told, jobs, columns, rest, buffers = pickle.loads(message)
    answers: list[Answer] = [
        (job, rebuilt(one, buffers), error if error is None else _KINDS[error[0]](error[1]))
        for job, one, error in rest
    ]
    arrays = {name: np.ndarray(*column) for name, column in columns.items()}
    begin = 0
    for job, count, width, height in jobs:
        end = begin + count
        parts = {name: array[begin:end] for name, array in arrays.items()}
        boxes, scores, labels = parts.pop("boxes"), parts.pop("scores"), parts.pop("labels", None)
        answers.append((job, DetectionArrays(boxes, scores, labels, parts, width, height), None))
        begin = end
    return answers, Told(*told)


def is_defect(error: BaseException) -> bool:
    """Return whether an error is none that a job may end with."""
    return not isinstance(error, (*_ERRORS, CancelledError))


def _plain_error(error: BaseException) -> tuple[int, str]:
    for number, kind in enumerate(_ERRORS):
        if isinstance(error, kind):
            return number, str(error)
    return len(_ERRORS), f"{type(error).__name__}: {error}"


def _columns(one: DetectionArrays) -> dict[str, NDArray[Any]]:
    columns = {"boxes": one.boxes, "scores": one.scores, **one.extras}
    return columns if one.labels is None else {**columns, "labels": one.labels}


def _joined(found: Sequence[DetectionArrays]) -> dict[str, tuple[Any, ...]]:
    """Join the detections; return the arguments of `np.ndarray` for each output."""
    count = sum(len(one.scores) for one in found)
    parts = [_columns(one) for one in found]
    joined: dict[str, tuple[Any, ...]] = {}
    for name, array in parts[0].items():
        memory = bytearray().join(np.ascontiguousarray(part[name]).data for part in parts)
        joined[name] = (count, *array.shape[1:]), array.dtype.str, memory
    return joined


def taken_apart(value: Any, buffers: list[memoryview]) -> Any:
    """Take a value apart, and append the memory of its CPU tensors and files to `buffers`.

    Each list in the result begins with a number that says what to make of it.
    """
    kind = type(value)
    if kind is torch.Tensor:
        return _plain_tensor(value, buffers)
    if kind is memoryview:
        buffers.append(value)
        return [_BYTES, len(buffers) - 1]
    if (record := _NUMBERS.get(kind)) is not None:
        number, fields = record
        return [number, *(taken_apart(one, buffers) for one in fields(value))]
    if kind is dict:
        return [_DICT, {name: taken_apart(one, buffers) for name, one in value.items()}]
    return [_LIST, value] if kind is list else value


def _plain_tensor(tensor: torch.Tensor, buffers: list[memoryview]) -> list[Any]:
    if tensor.dim() == 3 and not tensor.is_contiguous():  # an interleaved image: keep its memory layout
        number, array = _INTERLEAVED, tensor.permute(1, 2, 0).contiguous().numpy()
    else:
        number, array = _TENSOR, tensor.contiguous().numpy()
    buffers.append(pickle.PickleBuffer(array.data).raw())
    return [number, array.shape, array.dtype.str, len(buffers) - 1]


def rebuilt(plain: Any, buffers: Sequence[memoryview]) -> Any:
    """Return the value that was taken apart. Its tensors share the memory of `buffers`."""
    if type(plain) is not list:
        return plain
    number, *fields = plain
    if number >= 0:
        # Most fields are numbers: a call for each would take longer than the rest.
        record, names = _RECORDS[number]
        values = [rebuilt(one, buffers) if type(one) is list else one for one in fields]
        return record(**dict(zip(names, values, strict=True)))
    if number == _LIST:
        return fields[0]
    if number == _DICT:
        return {name: rebuilt(one, buffers) for name, one in fields[0].items()}
    if number == _BYTES:
        return file_tensor(buffers[fields[0]])
    shape, dtype, index = fields
    array = np.ndarray(shape, dtype, buffers[index])
    return torch.from_numpy(array.transpose(2, 0, 1) if number == _INTERLEAVED else array)
