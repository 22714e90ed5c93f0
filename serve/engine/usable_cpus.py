"""How many CPUs the service may use."""

import math
import os
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def usable_cpus(groups: Path = _GROUPS, own: Path = _OWN) -> int:
    """Those that this process may run on, or as many as it has the time of, where a container is limited in
    that (Linux' control groups, version 2: `cpu.max` of the own one and of those around it).

    groups: where they are mounted; own: the file that says in which this process is.
    """
    cpus = float(len(os.sched_getaffinity(0)))
    try:
        name = next(line[3:] for line in own.read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        return int(cpus)
    folder = groups / name.lstrip("/")
    for group in (folder, *folder.parents):
        cpus = min(cpus, _limit(group / "cpu.max"))
        if group == groups:
            break
    return max(1, math.ceil(cpus))


def _limit(file: Path) -> float:
    """CPUs, of a file that says `200000 100000` for two, both in microseconds, and `max 100000` for any."""
    try:
        quota, period = file.read_text().split()
        return math.inf if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):  # the outermost has none
        return math.inf
