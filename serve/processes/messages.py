"""The messages between front ends and engines.

A job is a record of msgspec. Its tensors and files lie in the front end's shared memory, and the message has
their places. Answers are pickled with their arrays, which is safe here: both ends are processes of one
service, and engines check a random key. Errors travel as text: not every exception can be pickled.
"""

import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from typing import Any

import numpy as np
import torch
from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder
from numpy.typing import NDArray
from torch import Tensor

from lensbox.runtime.detect.detection import Detections
from lensbox.serve.engine.jobs import CanvasJob, CodedJob, DetectJob, LossJob, TiledJob
from lensbox.serve.errors import DeadlineError, NotReadyError, OverloadError

Answer = tuple[int, Any, BaseException | None]  # number of the job; its result, or the error
_ERRORS = (OverloadError, NotReadyError, DeadlineError)  # any other is a defect
_KINDS = (*_ERRORS, RuntimeError)


class Request(Struct, array_like=True, frozen=True):
    """A job to compute, or, without a job, the number of one to cancel.

    asked, deadline: times of `time.monotonic`.
    """

    number: int
    job: DetectJob | CodedJob | TiledJob | CanvasJob | LossJob | None = None
    asked: float = 0.0
    deadline: float = 0.0


def request_message(request: Request, place: Callable[[memoryview], int]) -> bytes:
    """Return the message with a request. place: copies bytes to the shared memory; returns their offset."""

    def plain(value: Any) -> tuple[Any, ...]:
        array, is_interleaved = value, False
        if isinstance(value, Tensor):
            # Keep the memory layout of an image.
            is_interleaved = value.dim() == 3 and not value.is_contiguous()
            array = (value.permute(1, 2, 0) if is_interleaved else value).contiguous().numpy()
        # Not `array.data`, which has no bytes of empty arrays.
        memory = pickle.PickleBuffer(array).raw()
        return array.shape, array.dtype.str, is_interleaved, place(memory)

    return Encoder(enc_hook=plain).encode(request)


def request_decoder(memory: memoryview) -> Decoder[Request]:
    """Return a decoder of requests, whose tensors and files share the front end's memory.

    Raise msgspec's DecodeError, or ValueError for a place outside of the memory.
    """

    def rebuilt(kind: type[Any], plain: Any) -> Any:
        shape, dtype, is_interleaved, offset = plain
        array = np.ndarray(shape, dtype, memory, offset)
        if kind is not Tensor:
            return array
        return torch.from_numpy(array.transpose(2, 0, 1) if is_interleaved else array)

    return Decoder(Request, dec_hook=rebuilt)


def packed_answers(answers: Sequence[Answer]) -> bytes:
    """Return the message with these answers. Detections of all jobs travel as one array per output.

    One by one, the small arrays would take longer. All detections of an engine have the same outputs.
    """
    found = [(job, one) for job, one, _ in answers if type(one) is Detections]
    jobs = [(job, len(one.scores), one.width, one.height) for job, one in found]
    columns = _joined([one for _, one in found]) if found else {}
    rest = [
        (job, one, error if error is None else _plain_error(error))
        for job, one, error in answers
        if type(one) is not Detections
    ]
    return pickle.dumps((jobs, columns, rest), 5)


def unpacked_answers(message: bytes) -> list[Answer]:
    """Return the answers of a message, in any order."""
    jobs, columns, rest = pickle.loads(message)
    answers: list[Answer] = [
        (job, one, error if error is None else _KINDS[error[0]](error[1])) for job, one, error in rest
    ]
    arrays = {name: np.ndarray(*column) for name, column in columns.items()}
    begin = 0
    for job, count, width, height in jobs:
        end = begin + count
        parts = {name: array[begin:end] for name, array in arrays.items()}
        boxes, scores, labels = parts.pop("boxes"), parts.pop("scores"), parts.pop("labels", None)
        answers.append((job, Detections(boxes, scores, labels, parts, width, height), None))
        begin = end
    return answers


def is_defect(error: BaseException) -> bool:
    """Return whether an error is none that a job may end with."""
    return not isinstance(error, (*_ERRORS, CancelledError))


def _plain_error(error: BaseException) -> tuple[int, str]:
    for number, kind in enumerate(_ERRORS):
        if isinstance(error, kind):
            return number, str(error)
    return len(_ERRORS), f"{type(error).__name__}: {error}"


def _columns(one: Detections[NDArray[Any]]) -> dict[str, NDArray[Any]]:
    columns = {"boxes": one.boxes, "scores": one.scores, **one.extras}
    return columns if one.labels is None else {**columns, "labels": one.labels}


def _joined(found: Sequence[Detections[NDArray[Any]]]) -> dict[str, tuple[Any, ...]]:
    """Join the detections; return the arguments of `np.ndarray` for each output."""
    count = sum(len(one.scores) for one in found)
    parts = [_columns(one) for one in found]
    joined: dict[str, tuple[Any, ...]] = {}
    for name, array in parts[0].items():
        memory = bytearray().join(np.ascontiguousarray(part[name]).data for part in parts)
        joined[name] = (count, *array.shape[1:]), array.dtype.str, memory
    return joined
