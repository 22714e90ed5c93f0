"""What a front end makes of an engine's refusals, so that it does not decode images in vain."""

import time
from collections.abc import Callable

# An engine that has places again says so with its next answer; to a front end that waits for none, this
# long after its last refusal. The queue of a fast one lasts longer.
_PAUSE = 0.02
_FORGOTTEN = 1.0  # seconds after which a refusal says nothing of now
_DECREASE = 0.75


class Refusals:
    """How many requests a front end lets in, of an engine whose queue other front ends fill as well.

    As TCP finds its share of a line that is full: one more for each round of answers, and a quarter less of
    what is on its way for a round with refusals (AIMD). most: requests without any. clock: seconds that never
    go back.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._window = float(most)
        self._round = 0  # results that are still to come of what was on its way at the last decrease
        self._last = self._until = -1.0

    def has_room(self, requests: int) -> bool:
        """Whether one more is let in beside `requests` that are in progress."""
        now = self._clock()
        if self._last < now - _FORGOTTEN:
            self._window, self._round = float(self._most), 0
        return now >= self._until and requests < self._window

    def refused(self, jobs: int) -> None:
        """The engine had no place for one of `jobs`, all that were handed over and not answered yet."""
        self._last = self._clock()
        self._until = self._last + _PAUSE
        if self._round:
            self._round -= 1
        else:
            self._window = max(1.0, _DECREASE * min(jobs, self._window))
            self._round = jobs - 1

    def answered(self) -> None:
        """The engine has computed a job, and so taken others from its queue."""
        self._until = -1.0
        self._round = max(0, self._round - 1)
        self._window = min(self._most, self._window + 1 / self._window)
