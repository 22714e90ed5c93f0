"""Staying awake, which pays for short waits alone."""

from lensbox.serve.processes.busy_wait import BusyWait


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def _wait(wait: BusyWait, clock: Clock, seconds: float) -> None:
    wait.begin()
    clock.now += seconds
    wait.end()


def test_it_begins_with_sleep_and_stays_awake_after_a_short_wait() -> None:
    clock = Clock()
    wait = BusyWait(0.5, clock)
    wait.begin()
    assert not wait.goes_on
    clock.now += 0.25
    wait.end()
    wait.begin()
    assert wait.goes_on
    clock.now += 0.25
    assert wait.goes_on
    clock.now += 0.25
    assert not wait.goes_on


def test_a_long_wait_ends_it_until_there_is_a_short_one() -> None:
    clock = Clock()
    wait = BusyWait(0.5, clock)
    for seconds, is_awake in ((0.25, True), (0.75, False), (60.0, False), (0.25, True)):
        _wait(wait, clock, seconds)
        wait.begin()
        assert wait.goes_on is is_awake


def test_at_zero_it_always_sleeps() -> None:
    clock = Clock()
    wait = BusyWait(0.0, clock)
    for _ in range(3):
        _wait(wait, clock, 0.0)
        wait.begin()
        assert not wait.goes_on
