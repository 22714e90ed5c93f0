"""Readiness of front ends that share a socket: what the others are told."""

from typing import Any

from lensbox.serve.models.control import Report, Table
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
