"""Memory: how much an engine has taken, and how much is left for another one beside it."""

from pathlib import Path

import torch

from lensbox.serve.engine.devices import CGROUPS, OWN_CGROUP, container_groups
from lensbox.serve.errors import StartupError
from lensbox.serve.models.control import Need

_GIB = 1 << 30
_CONTEXT = 1 << 29  # bytes of a CUDA context, which torch does not count
_RESERVE = 1.1  # of the need: two loads of one file differ a little


def used_by_this_process(device: torch.device) -> Need:
    """Return what an engine takes, without memory that it shares with other processes."""
    host = sum(_values(Path("/proc/self/smaps_rollup"), "Private_Clean:", "Private_Dirty:"))
    return Need(host << 10, torch.cuda.memory_reserved(device) + _CONTEXT if device.type == "cuda" else 0)


def check_memory(need: Need, device: torch.device) -> None:
    """Raise StartupError unless a new version fits beside the one that serves and takes `need`."""
    _check("the host", need.host, host_memory_left())
    if device.type == "cuda":
        _check(str(device), need.device, torch.cuda.mem_get_info(device)[0])


def _check(owner: str, need: int, left: int) -> None:
    if need * _RESERVE > left:
        raise StartupError(
            f"the memory of {owner} must suffice for two versions: {need * _RESERVE / _GIB:.2f} GiB more, "
            f"got {left / _GIB:.2f} GiB; `--swap in-place` ends the old version first"
        )


def host_memory_left(
    meminfo: Path = Path("/proc/meminfo"), cgroups: Path = CGROUPS, own_cgroup: Path = OWN_CGROUP
) -> int:
    """Return the bytes that processes can still take: of the machine, or of the container if fewer.

    cgroups, own_cgroup: see `container_groups`.
    """
    left = min(_values(meminfo, "MemAvailable:"), default=1 << 40) << 10
    for group in container_groups(cgroups, own_cgroup):
        limit, used = _lines(group / "memory.max"), _lines(group / "memory.current")
        if limit and used and limit[0] != "max":
            cache = sum(_values(group / "memory.stat", "inactive_file"))  # the kernel gives it back
            left = min(left, int(limit[0]) - int(used[0]) + cache)
    return max(0, left)


def _values(path: Path, *names: str) -> list[int]:
    """Return the numbers behind these names, one name a line."""
    words = (line.split() for line in _lines(path))
    return [int(line[1]) for line in words if len(line) > 1 and line[0] in names]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:  # absent, for example outside of a container
        return []
