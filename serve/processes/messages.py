"""The messages between front ends and engines.

A job is a record of msgspec. Its tensors and files lie in the front end's shared memory, and the message has
their places. Answers are pickled with their arrays, which is safe here: both ends are processes of one
service, and engines check a random key. Errors travel as text: not every exception can be pickled.
"""

import io
import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder
from torch import Tensor

from lensbox.runtime.detect.detection import Detections
from lensbox.serve.engine.jobs import CanvasJob, CodedJob, DetectJob, LossJob, TiledJob
from lensbox.serve.errors import DeadlineError, NotReadyError, OverloadError

Answer = tuple[int, Any, BaseException | None]  # number of the job; its result, or the error
_ERRORS = (OverloadError, NotReadyError, DeadlineError)  # any other is a defect
_KINDS = (*_ERRORS, RuntimeError)
_FIELDS = attrgetter(*Detections.__slots__)


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

    Raises msgspec's DecodeError, or ValueError for a place outside of the memory.
    """

    def rebuilt(kind: type[Any], plain: Any) -> Any:
        shape, dtype, is_interleaved, offset = plain
        array = np.ndarray(shape, dtype, memory, offset)
        if kind is not Tensor:
            return array
        return torch.from_numpy(array.transpose(2, 0, 1) if is_interleaved else array)

    return Decoder(Request, dec_hook=rebuilt)


def packed_answers(answers: Sequence[Answer]) -> bytes:
    """Return the message with these answers. Arrays and dataclasses pickle themselves more slowly."""
    message = io.BytesIO()
    pickler = pickle.Pickler(message, 5)
    pickler.dispatch_table = {
        np.ndarray: lambda array: (np.ndarray, (array.shape, array.dtype, bytearray(array.tobytes()))),
        Detections: lambda one: (Detections, _FIELDS(one)),
    }
    pickler.dump([(job, one, None if error is None else _plain_error(error)) for job, one, error in answers])
    return message.getvalue()


def unpacked_answers(message: bytes) -> list[Answer]:
    """Return the answers of a message."""
    return [
        (job, one, None if error is None else _KINDS[error[0]](error[1]))
        for job, one, error in pickle.loads(message)
    ]


def is_defect(error: BaseException) -> bool:
    """Return whether an error is none that a job may end with."""
    return not isinstance(error, (*_ERRORS, CancelledError))


def _plain_error(error: BaseException) -> tuple[int, str]:
    for number, kind in enumerate(_ERRORS):
        if isinstance(error, kind):
            return number, str(error)
    return len(_ERRORS), f"{type(error).__name__}: {error}"
