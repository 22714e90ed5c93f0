"""Shared memory."""

import os
import random

import pytest

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
