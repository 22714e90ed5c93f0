"""Wait for a condition."""

import time
from collections.abc import Callable

PATIENCE = 120.0  # seconds; a timeout is a failure. The warm-up of a GPU may take most of it


def wait_until(condition: Callable[[], bool]) -> None:
    """Return once `condition` holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "the condition never became true"
        time.sleep(0.01)
