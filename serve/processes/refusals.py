"""What a front end remembers of an engine's refusals, so that it does not decode images in vain."""

import time
from collections.abc import Callable

# An engine that has places again says so with its next answer; to a front end that waits for none, this
# long after its last refusal. The queue of a fast one lasts longer.
_SECONDS = 0.02


class Refusals:
    """Whether an engine's queue, which other front ends fill as well, is taken to be full.

    clock: seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = -1.0

    @property
    def full(self) -> bool:
        """Whether a job would be refused, as far as is known here."""
        return self._clock() < self._until

    def refused(self) -> None:
        """The engine had no place for a job."""
        self._until = self._clock() + _SECONDS

    def answered(self) -> None:
        """The engine has computed a job, and so taken others from its queue."""
        self._until = -1.0
