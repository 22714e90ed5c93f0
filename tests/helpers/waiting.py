"""Wait for something that is sure to come."""

import time
from collections.abc import Callable

PATIENCE = 120.0  # seconds: reaching it is a failure, not a measurement. A GPU may need most of it to warm up


def wait_until(condition: Callable[[], bool]) -> None:
    """Return once `condition` holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "the awaited condition never came"
        time.sleep(0.01)
