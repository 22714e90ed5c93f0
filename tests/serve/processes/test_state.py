"""Readiness of front ends that share a socket: what each reports, and what the others are told."""

import asyncio
import multiprocessing
from typing import Any

import pytest
from waiting import PATIENCE

from lensbox.serve.errors import NotReadyError
from lensbox.serve.models.control import Report, Table
from lensbox.serve.processes.follower import Follower
from lensbox.serve.processes.state import Followers

_NONE = frozenset[int]()


class FakeChild:
    """The process of a front end. told: the names of front ends that are not ready, in the latest table."""

    process = object()

    def __init__(self, number: int) -> None:
        self.slot = f"frontend-{number}"
        self.told: frozenset[str] = frozenset()

    def send(self, table: Table) -> None:
        self.told = table.unready


def test_all_front_ends_are_told_which_is_not_ready() -> None:
    children: list[Any] = [FakeChild(number) for number in range(3)]
    followers = Followers()
    followers.children += children

    def told() -> list[set[str]]:
        return [set(child.told) for child in children]

    followers.note(children[0], Report(0, _NONE, _NONE, True))
    assert told() == [set()] * 3  # the other front ends do not accept requests yet
    followers.note(children[1], Report(0, _NONE, _NONE, False))
    assert told() == [{"frontend-1"}] * 3
    followers.note(children[1], Report(1, _NONE, _NONE, True))
    assert told() == [set()] * 3
    followers.note(children[2], Report(1, _NONE, _NONE, False))
    followers.greet(children[2])  # it had died
    assert told() == [set()] * 3


def test_a_front_end_reports_and_heeds_the_others() -> None:
    control, supervisor = multiprocessing.Pipe()

    async def follow() -> None:
        follower = Follower("frontend-0", control, 1 << 16, 0.0)
        follower.is_ready = lambda: False
        starting = asyncio.create_task(follower.start())

        async def report() -> Report:
            found: Report = await asyncio.wait_for(asyncio.to_thread(supervisor.recv), PATIENCE)
            return found

        assert not (await report()).is_ready
        for number, (unready, is_waiting) in enumerate([({"frontend-1"}, True), ({"frontend-0"}, False)], 1):
            supervisor.send(Table(number, (), frozenset(unready)))
            while (await report()).number < number:  # further reports are heartbeats
                pass
            if is_waiting:
                with pytest.raises(NotReadyError, match="another front end cannot take images yet"):
                    follower.check_peers()
            else:
                follower.check_peers()  # its own readiness is another check
        starting.cancel()
        assert await follower.stop(PATIENCE)

    asyncio.run(follow())
    control.close()
    supervisor.close()
