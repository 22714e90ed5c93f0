"""An engine whose batches and device are measured."""

from collections.abc import Callable

from lensbox.runtime import Artifact
from lensbox.serve.engine.instance import Instance
from lensbox.serve.observability.metrics import Metrics
from lensbox.serve.settings import Settings


def observed_instance(
    load: Callable[[], Artifact],
    settings: Settings,
    on_started: Callable[[Exception | None], None],
    metrics: Metrics,
) -> Instance:
    """As `Instance`, not started yet."""
    instance = Instance(load, settings, on_started, metrics.batch_computed)
    metrics.watch_device(lambda: instance.device)
    return instance
