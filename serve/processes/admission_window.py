"""Admission control of a front end whose engine is shared with other front ends."""

import time
from collections.abc import Callable

_PAUSE = 0.02  # seconds without requests after a refusal, unless the engine answers
_FORGOTTEN = 1.0  # seconds after which a refusal is forgotten
_DECREASE = 0.75


class AdmissionWindow:
    """Limit the requests in progress of a front end, so that it decodes no image that the engine will refuse.

    Additive increase, multiplicative decrease (AIMD), as in TCP: one more request per round of answers, a
    quarter less per round with refusals. most: the window without refusals. clock: returns monotonic seconds.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._window = float(most)
        self._round = 0  # jobs in flight at the last decrease that have no result yet
        self._last = self._until = -1.0

    def has_room(self, requests: int) -> bool:
        """Return whether to admit a request while `requests` are in progress."""
        now = self._clock()
        if self._last < now - _FORGOTTEN:
            self._window, self._round = float(self._most), 0
        return now >= self._until and requests < self._window

    def refused(self, jobs: int) -> None:
        """Record that the engine had no room for one of the `jobs` in flight."""
        self._last = self._clock()
        self._until = self._last + _PAUSE
        if self._round:
            self._round -= 1
        else:
            self._window = max(1.0, _DECREASE * min(jobs, self._window))
            self._round = jobs - 1

    def answered(self) -> None:
        """Record that the engine has computed a job."""
        self._until = -1.0
        self._round = max(0, self._round - 1)
        self._window = min(self._most, self._window + 1 / self._window)
