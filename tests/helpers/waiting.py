"""Wait for something that is sure to come."""

import time
from collections.abc import Callable

PATIENCE = 60.0  # seconds: reaching it is a failure, not a measurement


def wait_until(condition: Callable[[], bool]) -> None:
    """Return once `condition` holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "the awaited condition never came"
        time.sleep(0.01)
