"""The folder in which the processes of one service keep their metrics. Needs no torch."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

# prometheus_client looks at it when it is imported: it has to be set before.
SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"


class SharedMetrics:
    """What the process that starts the others has to say. Within `shared_metrics` alone."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter

        # As `metrics.Metrics` has it, with which it is summed.
        self._restarts = Counter("lensbox_restarts", "", registry=CollectorRegistry())

    def process_ended(self, process_id: int) -> None:
        """A process has ended and is started again: of what it said, its counts stay, its state does not."""
        from prometheus_client.multiprocess import mark_process_dead

        mark_process_dead(process_id)
        self._restarts.inc()


@contextmanager
def shared_metrics() -> Iterator[SharedMetrics]:
    """The processes that are started meanwhile share their metrics. Enter it before the first of them."""
    with tempfile.TemporaryDirectory(prefix="lensbox-metrics-", ignore_cleanup_errors=True) as folder:
        os.environ[SHARED_FOLDER] = folder
        try:
            yield SharedMetrics()
        finally:
            del os.environ[SHARED_FOLDER]
