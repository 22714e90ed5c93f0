"""Whether a process that waits for another stays awake."""

import time
from collections.abc import Callable


class BusyWait:
    """Stays awake while that pays: while the last wait was shorter than `limit`, in seconds; 0: never.

    Who sleeps is woken up by the system, 40 to 170 us later on virtual machines, and then runs more slowly
    for a while: beside an H200, decoding a photograph took 1.7 to 1.9 ms after 2 ms of sleep instead of 1.5,
    and from there to its boxes 1.2 instead of 0.9. Waits of more than a few milliseconds are not worth a CPU.
    clock: seconds that never go back.
    """

    def __init__(self, limit: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._begun = 0.0
        self._pays = False

    def begin(self) -> None:
        """A wait begins."""
        self._begun = self._clock()

    @property
    def goes_on(self) -> bool:
        """Whether to look once more instead of sleeping."""
        return self._pays and self._is_short

    def end(self) -> None:
        """What was waited for has come, or the wait was given up."""
        self._pays = self._is_short

    @property
    def _is_short(self) -> bool:
        return self._clock() - self._begun < self._limit
