"""Jobs and answers as messages, their framing, and the shared memory."""

import math
import random
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from lensbox.runtime.detect.detection import Detections
from lensbox.runtime.images.gpu_jpeg import CodedPhoto
from lensbox.runtime.images.photo import Photo
from lensbox.serve.engine.jobs import (
    CanvasJob,
    CodedJob,
    DetectJob,
    Loss,
    LossJob,
    TiledJob,
)
from lensbox.serve.errors import NotReadyError
from lensbox.serve.processes.messages import (
    Answer,
    Arena,
    Request,
    framed,
    packed_answers,
    request_decoder,
    request_message,
    unframed,
    unpacked_answers,
)


def _round_trip(job: Any) -> Any:
    """Send a job; return what arrives, and the shared memory with all its tensors."""
    memory = bytearray()

    def place(content: memoryview) -> int:
        memory.extend(content)
        return len(memory) - len(content)

    message = request_message(Request(7, job, 1.5, math.inf), place)
    assert len(message) < 200  # without the tensors
    request = request_decoder(memoryview(memory)).decode(message)
    assert (request.number, request.asked, request.deadline) == (7, 1.5, math.inf)
    return request.job, memory


@pytest.mark.parametrize("interleaved", [True, False])
def test_photographs_share_their_memory(interleaved: bool) -> None:
    pixels = torch.randint(0, 256, [5, 7, 3], dtype=torch.uint8).permute(2, 0, 1)
    photo = Photo(pixels if interleaved else pixels.contiguous(), 14, 10, (0, 0, 14, 10))
    job, memory = _round_trip(DetectJob((0.5, None), photo))
    assert len(memory) == 105
    assert job.photo.pixels.stride() == photo.pixels.stride()
    assert torch.equal(job.photo.pixels, pixels)
    assert (job.photo.window, job.thresholds) == (photo.window, (0.5, None))
    memory[:] = bytes(105)
    assert not job.photo.pixels.any()


def test_other_jobs_round_trip() -> None:
    for file in (b"content", bytearray(b"content")):
        coded, _ = _round_trip(CodedJob.of((None, 0.5), CodedPhoto("", memoryview(file), 6, 8, 4)))
        assert bytes(coded.photo.file) == file
        assert (coded.photo[2:], coded.group) == ((6, 8, 4), (CodedJob, (None, 0.5)))
    canvases = torch.randint(0, 256, [6, 1, 4, 4], dtype=torch.uint8)
    for part in (canvases, canvases[1::2]):
        assert torch.equal(_round_trip(CanvasJob((None, 0.5), part))[0].canvases, part)
    boxes = torch.zeros(0, 4, dtype=torch.float64)
    job, _ = _round_trip(LossJob(boxes, boxes + 1, True))
    assert job.gradient is True
    assert job.predictions.shape == job.targets.shape == (0, 4)
    assert job.targets.dtype == torch.float64
    photo = Photo.of(torch.zeros([1, 4, 8], dtype=torch.uint8))
    tiled, _ = _round_trip(TiledJob((None, 0.5), photo, [(0, 0, 4, 4), (4, 0, 8, 4)]))
    assert tiled.windows == [(0, 0, 4, 4), (4, 0, 8, 4)]
    assert tiled.photo.window == (0, 0, 8, 4)


def test_refuses_a_place_outside_of_the_memory() -> None:
    job = CanvasJob((None, None), torch.zeros([1, 1, 4, 4], dtype=torch.uint8))
    message = request_message(Request(1, job), lambda _: 8)
    with pytest.raises((ValueError, TypeError)):
        request_decoder(memoryview(bytearray(20))).decode(message)
    assert request_decoder(memoryview(b"")).decode(request_message(Request(5), lambda _: 0)).job is None


def _detections(count: int, named: bool) -> Detections[Any]:
    labels = np.arange(count) if named else None
    extras = {"points": _random(count, 5, 2).transpose(0, 2, 1)} if named else {}
    return Detections(_random(count, 9)[:, :4], _random(count), labels, extras, 10 + count, 20)


def _random(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(0).random(shape, np.float32)


@pytest.mark.parametrize("named", [True, False])
def test_answers_round_trip(named: bool) -> None:
    sent: list[Any] = [_detections(count, named) for count in (3, 0, 1)]
    others = [None, Loss(0.5, None), {"counts": 3}]
    answers: list[Answer] = list(enumerate([*sent, *others]))
    answers += [(9, NotReadyError("ended")), (10, KeyError("a defect"))]
    found = dict(unpacked_answers(packed_answers(answers)))
    errors = [(type(found[number]), str(found[number])) for number in (9, 10)]
    assert errors == [(NotReadyError, "ended"), (RuntimeError, "KeyError: 'a defect'")]
    assert [found[number] for number in (3, 4, 5)] == others
    for number, one in enumerate(sent):
        result = found[number]
        assert (result.width, result.height, result.extras.keys()) == (one.width, 20, one.extras.keys())
        assert np.array_equal(result.boxes, one.boxes)
        assert np.array_equal(result.scores, one.scores)
        assert result.labels is None if one.labels is None else np.array_equal(result.labels, one.labels)
        assert all(np.array_equal(result.extras[name], one.extras[name]) for name in one.extras)
        assert result.boxes.dtype == np.float32


def test_messages_arrive_whole_in_any_pieces() -> None:
    messages = [bytes([number % 256]) * size for number, size in enumerate([0, 1, 7, 3000] * 9)]
    sent, received, found = b"".join(map(framed, messages)), bytearray(), list[bytes]()
    for begin in range(0, len(sent), 11):
        received += sent[begin : begin + 11]
        found += unframed(received)
    assert found == messages
    assert not received


def test_blocks_never_overlap() -> None:
    arena = Arena(1 << 16)
    blocks: dict[int, int] = {}
    draw = random.Random(0)
    refused = 0
    for _ in range(3000):
        if blocks and draw.random() < 0.5:
            offset = draw.choice(sorted(blocks))
            arena.free([offset])
            del blocks[offset]
        else:
            size = draw.randrange(1, 8000)
            block = arena.allocate(size)
            if block is None:
                refused += 1
                continue
            assert block % 64 == 0
            assert block + size <= arena.size
            assert all(block + size <= begin or block >= begin + taken for begin, taken in blocks.items())
            blocks[block] = size
    assert refused > 0
    for offset in blocks:
        arena.free([offset])
    assert not arena.taken
    assert arena.allocate(1 << 16) == 0  # freed blocks are merged
