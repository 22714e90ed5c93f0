"""The messages between front ends and engines, and the shared memory with the tensors of jobs.

A job is a record of msgspec. Its tensors and files lie in the front end's shared memory, and the message has
their places. An answer of detections is a record, too; others are pickled, which is safe here: both ends are
processes of one service, and engines check a random key. Errors travel as text: not every exception can be
pickled.
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
from lensbox.serve.engine.jobs import Array, CanvasJob, CodedJob, DetectJob, LossJob, TiledJob
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
    """Return the message with these answers."""
    found = [answer for answer in answers if type(answer[1]) is Detections]
    rest = [
        (number, None, (type(one).__name__, str(one)))
        if isinstance(one, BaseException)
        else (number, one, None)
        for number, one in answers
        if type(one) is not Detections
    ]
    return _ANSWERS.encode((found, pickle.dumps(rest) if rest else b""))


def unpacked_answers(message: bytes) -> list[Answer]:
    """Return the answers of a message, in any order. A defect of the engine becomes a RuntimeError."""
    answers, rest = _READ_ANSWERS.decode(message)
    for number, one, error in pickle.loads(rest) if rest else ():
        if error is not None:
            name, text = error
            one = _ERRORS[name](text) if name in _ERRORS else RuntimeError(f"{name}: {text}")
        answers.append((number, one))
    return answers


def _plain(array: Array) -> tuple[tuple[int, ...], str, bytes]:
    return array.shape, array.dtype.str, array.tobytes()


_ANSWERS = Encoder(enc_hook=_plain)
_READ_ANSWERS: Decoder[tuple[list[Answer], bytes]] = Decoder(
    tuple[list[tuple[int, Detections[Array]]], bytes],
    dec_hook=lambda _, plain: np.ndarray(*plain),
)
