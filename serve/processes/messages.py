"""The messages between front ends and engines, and the shared memory with the tensors of jobs.

A job is a record of msgspec. Its tensors and files lie in the front end's shared memory, and the message has
their places. Answers are pickled with their arrays, which is safe here: both ends are processes of one
service, and engines check a random key. Errors travel as text: not every exception can be pickled.
"""

import mmap
import os
import pickle
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder
from torch import Tensor

from lensbox.runtime.detect.detection import Detections
from lensbox.serve.engine.jobs import CanvasJob, CodedJob, DetectJob, LossJob, TiledJob
from lensbox.serve.errors import DeadlineError, NotReadyError, OverloadError

_LENGTH = struct.Struct("<Q")  # before each message
_ALIGNMENT = 64
Answer = tuple[int, Any]  # number of the job; its result, or an exception
_ERRORS = {kind.__name__: kind for kind in (OverloadError, NotReadyError, DeadlineError)}


class Arena:
    """An allocator in a shared memory file: a front end writes images, engines read them. First fit.

    The file has no name (memfd): it ends with the last process that uses it, and the size of /dev/shm (small
    in containers) does not limit it. One thread allocates and frees.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.file = os.memfd_create("lensbox")
        os.ftruncate(self.file, size)
        self._memory = mmap.mmap(self.file, size)
        self.taken: dict[int, int] = {}  # end of each block by its begin

    def allocate(self, nbytes: int) -> int | None:
        """Return the offset of a new block, a multiple of 64; None if there is no room."""
        nbytes = -(-max(nbytes, 1) // _ALIGNMENT) * _ALIGNMENT
        begin = 0
        for taken, end in sorted(self.taken.items()):  # a block for each request at most, and some for tiles
            if taken - begin >= nbytes:
                break
            begin = end
        if begin + nbytes > self.size:
            return None
        self.taken[begin] = begin + nbytes
        return begin

    def free(self, offsets: Iterable[int]) -> None:
        """Free the blocks at these offsets. Raise KeyError if no block begins there."""
        for offset in offsets:
            del self.taken[offset]

    def write(self, blocks: Mapping[int, memoryview]) -> None:
        """Copy bytes to offsets. Any thread may call it."""
        for offset, content in blocks.items():
            self._memory[offset : offset + len(content)] = content


def framed(message: bytes) -> bytes:
    """Return a message with its length."""
    return _LENGTH.pack(len(message)) + message


def unframed(received: bytearray) -> list[bytes]:
    """Remove and return the complete messages at the beginning."""
    messages, begin = [], 0
    while len(received) >= begin + _LENGTH.size:
        end = begin + _LENGTH.size + _LENGTH.unpack_from(received, begin)[0]
        if len(received) < end:
            break
        messages.append(bytes(memoryview(received)[begin + _LENGTH.size : end]))
        begin = end
    del received[:begin]
    return messages


class Request(Struct, array_like=True, frozen=True):
    """A job to compute, or, without a job, the number of one to cancel.

    asked, deadline: times of `time.monotonic`.
    """

    number: int
    job: DetectJob | CodedJob | TiledJob | CanvasJob | LossJob | None = None
    asked: float = 0.0
    deadline: float = 0.0


def request_message(request: Request, place: Callable[[memoryview], int]) -> bytes:
    """Return the message with a request. place: returns an offset of the shared memory for these bytes."""

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
    jobs, rest = list[tuple[int, int, int, int]](), list[tuple[int, Any, tuple[str, str] | None]]()
    parts, count = list[dict[str, Any]](), 0
    for number, one in answers:
        if type(one) is Detections:
            jobs.append((number, len(one.scores), one.width, one.height))
            count += len(one.scores)
            labels = {} if one.labels is None else {"labels": one.labels}
            parts.append({"boxes": one.boxes, "scores": one.scores, **labels, **one.extras})
        elif isinstance(one, BaseException):
            rest.append((number, None, (type(one).__name__, str(one))))
        else:
            rest.append((number, one, None))
    columns = {}
    for name, array in parts[0].items() if parts else ():
        memory = bytearray().join([np.ascontiguousarray(part[name]).data for part in parts])
        columns[name] = (count, *array.shape[1:]), array.dtype.str, memory
    return pickle.dumps((jobs, columns, rest), 5)


def unpacked_answers(message: bytes) -> list[Answer]:
    """Return the answers of a message, in any order. A defect of the engine becomes a RuntimeError."""
    jobs, columns, rest = pickle.loads(message)
    answers: list[Answer] = []
    for number, one, error in rest:
        if error is not None:
            name, text = error
            one = _ERRORS[name](text) if name in _ERRORS else RuntimeError(f"{name}: {text}")
        answers.append((number, one))
    arrays = {name: np.ndarray(*column) for name, column in columns.items()}
    begin = 0
    for number, count, width, height in jobs:
        end = begin + count
        parts = {name: array[begin:end] for name, array in arrays.items()}
        boxes, scores, labels = parts.pop("boxes"), parts.pop("scores"), parts.pop("labels", None)
        answers.append((number, Detections(boxes, scores, labels, parts, width, height)))
        begin = end
    return answers
