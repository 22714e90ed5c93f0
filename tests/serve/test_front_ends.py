"""How an engine waits for its front ends."""

import os
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux' shared memory")

if hasattr(os, "memfd_create"):
    from lensbox.serve.processes.front_ends import FrontEnds


class FakeEpoll:
    """Something comes at the looks whose numbers are in `comes`."""

    def __init__(self, comes: set[int]) -> None:
        self.timeouts: list[float] = []
        self._comes = comes

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        self.timeouts.append(timeout)
        return [(7, 1)] if len(self.timeouts) in self._comes else []


def _waits(busy_poll: float, comes: set[int], *timeouts: float) -> list[float]:
    """How long it waited at each look, over several calls of `receive`."""
    front_ends: Any = FrontEnds(busy_poll)
    front_ends._epoll.close()
    front_ends._epoll = FakeEpoll(comes)
    front_ends._by_file[7] = SimpleNamespace(receive=lambda: True)
    for timeout in timeouts:
        front_ends.receive(timeout)
    waited: list[float] = front_ends._epoll.timeouts
    return waited


def test_it_sleeps_where_nothing_else_is_asked_for() -> None:
    assert _waits(0.0, {2, 4}, 1.0, 1.0) == [0, 1.0, 0, 1.0]


def test_what_has_come_is_not_waited_for() -> None:
    assert _waits(60.0, {1, 2}, 1.0, 0.0) == [0, 0]


def test_after_a_short_wait_it_stays_awake() -> None:
    assert _waits(0.5, {2, 9}, 1.0, 1.0) == [0, 1.0, 0, 0, 0, 0, 0, 0, 0]


def test_it_sleeps_until_a_batch_is_to_begin() -> None:
    assert _waits(0.5, {2}, 1.0, 0.01) == [0, 1.0, 0, 0.01]
