"""Defaults that depend on the machine: devices, batch sizes, number of front ends."""

import contextlib
import math
import multiprocessing
import os
from dataclasses import replace
from pathlib import Path

from lensbox.common.errors import DeviceError
from lensbox.serve.errors import StartupError
from lensbox.serve.settings import Settings

_MOST_FRONTENDS = 12
_FOUND = 100  # exit code for no GPU, one more for each; lower codes are failures
_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")


def for_this_machine(settings: Settings) -> tuple[Settings, list[str]]:
    """Return the settings with what depends on the machine, and one device per engine.

    Beside a GPU there is a front end for every two CPUs; on a CPU one, because the model takes the CPUs.
    Raise DeviceError for "all" without a GPU.
    """
    devices = settings.device.split(",")
    uses_gpu = devices[0].startswith("cuda")
    if devices[0] in ("all", "auto"):
        count = _count_gpus()
        uses_gpu = count > 0
        if devices[0] == "all":
            if not uses_gpu:
                raise DeviceError("device must be usable, got 'all', but torch finds no GPU")
            devices = [f"cuda:{number}" for number in range(count)]
    frontends = settings.frontends or (max(1, min(_MOST_FRONTENDS, usable_cpus() // 2)) if uses_gpu else 1)
    return replace(settings, frontends=frontends), devices


def _count_gpus() -> int:
    """Return the number of GPUs that torch can use. Raise StartupError if looking for them ends the process.

    Another process looks, and tells by its exit code: whoever has begun to use CUDA cannot fork engines.
    """

    def look() -> None:
        import torch

        os._exit(_FOUND + (torch.cuda.device_count() if torch.cuda.is_available() else 0))

    process = multiprocessing.get_context("fork").Process(target=look)
    process.start()
    process.join()
    if (code := process.exitcode or 0) < _FOUND:
        raise StartupError(f"the search for GPUs ended with {code}; --device cpu skips it")
    return code - _FOUND


def batch_sizes(largest: int) -> list[int]:
    """Return the batch sizes to warm up and to capture: 1, 2, 4, 8, 16, 24, 32, 48, 64, ... and `largest`.

    A batch of any other size is padded to the next of these sizes.
    """
    powers = [1 << exponent for exponent in range((largest - 1).bit_length())]
    between = [power + power // 2 for power in powers if power >= 16]
    return sorted(size for size in {*powers, *between, largest} if size <= largest)


def usable_cpus(cgroups: Path = _CGROUPS, own_cgroup: Path = _OWN_CGROUP) -> int:
    """Return the number of CPUs in this process's affinity mask, or its container's CPU limit if lower.

    The limit is the lowest `cpu.max` of the process's cgroup (version 2) and its parents. cgroups: mount
    point; own_cgroup: the file that names the cgroup.
    """
    own: float = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, StopIteration):  # no cgroup
        name = next(line[4:] for line in own_cgroup.read_text().splitlines() if line.startswith("0::/"))
        for group in (cgroups / name, *(cgroups / name).parents):
            if group.is_relative_to(cgroups):
                own = min(own, _cpu_limit(group / "cpu.max"))
    return max(1, math.ceil(own))


def _cpu_limit(file: Path) -> float:
    """Return the CPU limit in a `cpu.max` file: `200000 100000` (microseconds) is 2, `max 100000` inf."""
    try:
        quota, period = file.read_text().split()
        return math.inf if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):  # the root cgroup has no such file
        return math.inf
