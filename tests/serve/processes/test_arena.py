"""Shared memory, and the framing of messages."""

import random

from lensbox.serve.processes.arena import Arena, framed, unframed


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
