"""Shared memory, and pickled jobs."""

import os
import random
from typing import Any

import pytest
import torch

from lensbox.runtime.box_loss import BoxPairs
from lensbox.runtime.images.photo import Photo
from lensbox.serve.engine.jobs import CanvasJob, DetectJob, LossJob
from lensbox.serve.processes.shared_memory import packed, packed_whole, unpacked

if hasattr(os, "memfd_create"):
    from lensbox.serve.processes.shared_memory import Arena

needs_linux = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux' shared memory")


@needs_linux
def test_blocks_never_overlap() -> None:
    arena = Arena(1 << 16)
    blocks: dict[int, int] = {}
    draw = random.Random(0)
    refused = 0
    for _ in range(3000):
        if blocks and draw.random() < 0.5:
            offset = draw.choice(sorted(blocks))
            arena.free(offset)
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
        arena.free(offset)
    assert arena.is_empty
    assert arena.allocate(1 << 16) == 0  # freed blocks are merged


def _round_trip(value: Any) -> Any:
    data, buffers = packed(value)
    return unpacked(data, [memoryview(bytearray(buffer)) for buffer in buffers])


@pytest.mark.parametrize("interleaved", [True, False])
def test_photographs_round_trip(interleaved: bool) -> None:
    pixels = torch.randint(0, 256, [5, 7, 3], dtype=torch.uint8).permute(2, 0, 1)
    photo = Photo(pixels if interleaved else pixels.contiguous(), 14, 10, (0, 0, 14, 10))
    data, buffers = packed(DetectJob(photo, 0.5, None))
    assert [buffer.nbytes for buffer in buffers] == [105]
    assert len(data) < 1000  # without the pixels
    shared = bytearray(buffers[0])
    job = unpacked(data, [memoryview(shared)])
    assert job.photo.pixels.stride() == photo.pixels.stride()
    assert torch.equal(job.photo.pixels, pixels)
    assert (job.photo.window, job.score_threshold) == (photo.window, 0.5)
    shared[:] = bytes(105)
    assert not job.photo.pixels.any()  # shares the memory


def test_other_jobs_round_trip() -> None:
    canvases = torch.randint(0, 256, [6, 1, 4, 4], dtype=torch.uint8)
    for part in (canvases, canvases[1::2]):
        assert torch.equal(_round_trip(CanvasJob(part, None, 0.5)).canvases, part)
    boxes = torch.zeros(0, 4, dtype=torch.float64)
    job = _round_trip(LossJob(BoxPairs(boxes, boxes + 1, (0, 0)), True, False, 7))
    assert (job.pairs.sizes, job.per_image, job.gradient, job.most_slots) == ((0, 0), True, False, 7)
    assert job.pairs.predictions.shape == job.pairs.targets.shape == (0, 4)
    assert job.pairs.targets.dtype == torch.float64


@pytest.mark.parametrize(
    "values",
    [torch.rand(2, 3, 4).permute(2, 0, 1), torch.zeros(0, 4), torch.tensor(3), torch.tensor([True, False])],
    ids=["permuted", "empty", "number", "bool"],
)
def test_tensors_round_trip(values: torch.Tensor) -> None:
    for found in (unpacked(packed_whole(values)), _round_trip(values)):
        assert (found.dtype, found.shape) == (values.dtype, values.shape)
        assert found.is_contiguous() is values.is_contiguous()
        assert torch.equal(found, values)
        found.zero_()  # writable
