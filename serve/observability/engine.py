"""An engine whose batches and device are measured."""

from collections.abc import Callable

from lensbox.runtime import Artifact
from lensbox.runtime.device_timer import DeviceTimer
from lensbox.serve.engine.instance import Instance
from lensbox.serve.observability.metrics import Metrics
from lensbox.serve.settings import Settings


def observed_instance(
    load: Callable[[], Artifact],
    settings: Settings,
    on_started: Callable[[Exception | None], None],
    metrics: Metrics,
    receive: Callable[[float], None] | None = None,
) -> Instance:
    """As `Instance`, not started yet."""
    letterbox: list[DeviceTimer] = []  # of the batch that is computed; for the engine's thread alone

    def load_observed() -> Artifact:
        artifact = load()
        artifact.on_letterbox = letterbox.append
        return artifact

    def on_batch(images: int, seconds: float, waited: list[float]) -> None:
        # The batch is answered: nobody waits for this.
        metrics.batch_computed(images, seconds, waited, sum(map(_seconds, letterbox)))
        letterbox.clear()

    instance = Instance(load_observed, settings, on_started, on_batch, receive)
    metrics.watch_device(lambda: instance.device)
    return instance


def _seconds(timer: DeviceTimer) -> float:
    try:
        return timer.seconds()
    except RuntimeError:  # another job of the batch has ruined the context meanwhile; the model is given up
        return 0.0
