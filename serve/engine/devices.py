"""Which devices have engines, how many front ends feed them, and whether these wait awake."""

import sys

from lensbox.common.errors import DeviceError
from lensbox.serve.engine.usable_cpus import usable_cpus
from lensbox.serve.settings import Settings

_MOST_FRONTENDS = 12
_BUSY_POLL = 4  # milliseconds


def device_names(settings: Settings) -> list[str]:
    """One for each engine, as `load_model` takes them. Raises DeviceError for "all" without a GPU."""
    if settings.devices != "all":
        return settings.devices.split(",") if settings.devices else [settings.device]
    import torch

    if not torch.cuda.is_available():
        raise DeviceError("devices must be usable, got 'all' where torch finds no GPU")
    return [f"cuda:{number}" for number in range(torch.cuda.device_count())]


def frontend_count(settings: Settings, devices: list[str]) -> int:
    """How many processes speak HTTP: by default none on a CPU, and three for every four CPUs beside a GPU."""
    if settings.frontends is not None:
        return settings.frontends
    if not sys.platform.startswith("linux") or not _uses_gpu(devices[0]):
        return 0
    return max(1, min(_MOST_FRONTENDS, usable_cpus() * 3 // 4))


def busy_poll(settings: Settings, devices: list[str]) -> int:
    """Milliseconds for which processes that wait for each other stay awake: by default a few where devices
    are GPUs alone and there are more CPUs than processes. A model on a CPU they would take the time of."""
    if settings.busy_poll is not None:
        return settings.busy_poll
    if not all(map(_uses_gpu, devices)):
        return 0
    has_room = (settings.frontends or 0) + len(devices) < usable_cpus()
    return _BUSY_POLL if has_room else 0


def _uses_gpu(device: str) -> bool:
    if device != "auto":
        return device.startswith("cuda")
    import torch

    return torch.cuda.is_available()
