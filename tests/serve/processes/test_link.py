"""Connections between processes of the service, shared memory, and busy-polling."""

import asyncio
import multiprocessing
import os
import random
import select
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from waiting import PATIENCE, wait_until

from lensbox.serve.processes.link import Arena, BusyWait, Link

Pair = tuple[Link, Link]


@pytest.fixture
def pair() -> Iterator[Pair]:
    first, second = multiprocessing.Pipe()
    links = Link(first, "first"), Link(second, "second")
    yield links
    for link in links:
        link.close()


def _read(link: Link, count: int) -> list[bytes]:
    """Return at least `count` messages; fewer after a hang-up or a timeout."""
    found: list[bytes] = []
    while len(found) < count and select.select([link], [], [], PATIENCE)[0]:
        if (messages := link.received()) is None:
            break
        found += messages
    return found


def test_send_does_not_block_and_mixes_nothing(pair: Pair) -> None:
    first, second = pair
    large = [bytes([number]) * (1 << 20) for number in range(20)]  # far more than a socket holds
    for message in large:
        first.send(message)

    def send(letter: bytes) -> None:
        for size in range(1, 40):
            first.send(letter * (size * 9973))

    threads = [threading.Thread(target=send, args=(letter,)) for letter in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    found = _read(second, 20 + 3 * 39)
    for thread in threads:
        thread.join()
    assert [message for message in found if message[0] < 20] == large
    for letter in (b"a", b"b", b"c"):
        mine = [message for message in found if message[:1] == letter]
        assert mine == [letter * (size * 9973) for size in range(1, 40)]
    for link, other in ((first, second), (second, first)):
        link.send(b"one more")  # sent without the thread
        assert _read(other, 1) == [b"one more"]


def test_received_does_not_block() -> None:
    sender, connection = multiprocessing.Pipe()
    with closing(Link(connection, "receiver")) as link:
        assert link.received() == []
        os.write(sender.fileno(), (5).to_bytes(8, "little") + b"hal")
        assert link.received() == []
        os.write(sender.fileno(), b"ves")
        assert link.received() == [b"halve"]
        sender.close()
        assert link.received() is None
        link.send(b"lost")  # raises nothing


def test_an_event_loop_receives_all_messages(pair: Pair) -> None:
    first, second = pair
    # Small messages arrive together, large messages in pieces.
    messages = [bytes([number % 256]) * size for number, size in enumerate([0, 1, 7, 3000, 300_000] * 50)]
    found: list[bytes] = []

    async def receive() -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        second.receive_in(loop, found.append, ended.set)

        def send() -> None:
            for message in messages:
                first.send(message)

        await asyncio.wait_for(loop.run_in_executor(None, send), PATIENCE)
        until = time.monotonic() + PATIENCE
        while len(found) < len(messages) and time.monotonic() < until:
            await asyncio.sleep(0.001)
        assert not ended.is_set()
        first.end()
        await asyncio.wait_for(ended.wait(), PATIENCE)

    asyncio.run(receive())
    assert found == messages


def test_a_closed_link_leaves_no_thread(pair: Pair) -> None:
    for link in pair:
        link.send(bytes(1 << 22))  # each sender waits for its reader
        link.close()
    wait_until(lambda: not {"first-send", "second-send"} & {thread.name for thread in threading.enumerate()})


@pytest.mark.parametrize(
    ("limit", "arrivals", "timeouts", "polls"),
    [
        (0.0, {2, 4}, [100.0, 100.0], [0, 100, 0, 100]),
        (60.0, {1, 2}, [100.0, 0.0], [0, 0]),  # does not wait if events are there
        (60.0, {2, 9}, [100.0, 100.0], [0, 100, 0, 0, 0, 0, 0, 0, 0]),  # busy-polls after a short wait
        (60.0, {2}, [100.0, 0.01], [0, 100, 0, 0.01]),  # sleeps while a batch waits for more jobs
    ],
)
def test_poll_busy_polls_after_a_short_wait_only(
    limit: float, arrivals: set[int], timeouts: list[float], polls: list[float]
) -> None:
    """arrivals: numbers of the calls of `poll` that return an event."""
    wait, calls = BusyWait(limit), list[float]()

    def poll(timeout: float) -> list[int]:
        calls.append(timeout)
        return [7] if len(calls) in arrivals else []

    for timeout in timeouts:
        wait.poll(poll, timeout)
    assert calls == polls


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
