"""The table of the front ends, and their reports."""

from types import SimpleNamespace
from typing import Any

import pytest

from lensbox.serve.models.control import Report
from lensbox.serve.processes.state import Followers

_OLD, _NEW = 1, 2


def _report(number: int, serving: int, *used: int) -> Report:
    return Report(number, frozenset([serving]), frozenset([serving, *used]))


@pytest.mark.parametrize(
    ("report", "has_moved", "uses_old"),
    [
        (None, False, True),  # a process that has just started
        (_report(0, _OLD), False, True),
        (_report(1, _OLD, _NEW), False, True),  # connecting
        (_report(1, _NEW, _OLD), True, True),  # the old version answers its last requests
        (_report(1, _NEW), True, False),
    ],
)
def test_a_swap_waits_for_the_last_front_end(report: Report | None, has_moved: bool, uses_old: bool) -> None:
    followers = Followers()
    for number, pid in enumerate((1, 2, None)):  # the last one is about to be restarted
        child: Any = SimpleNamespace(slot=f"frontend-{number}", pid=pid, send=lambda table: None)
        followers.children.append(child)
    followers.publish((), is_ready=True)
    followers.reports["frontend-0"] = _report(1, _NEW)
    if report is not None:
        followers.reports["frontend-1"] = report
    assert followers.have_moved_to(_NEW) == has_moved
    assert followers.use(_OLD, since=1) == uses_old
