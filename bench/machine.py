"""The machine that figures are taken on: its description, its copy bandwidth, its threads."""

import contextlib
import os
import platform
import statistics
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone

import torch

from lensbox.common.machine import cpu_name, driver_version, package_version
from lensbox.ops import library_path, read_build_info

_COPY_BYTES = {"cuda": 1 << 30, "cpu": 64 << 20}
_COPIES = 10

Environment = list[tuple[str, str]]  # names and values


def describe_machine(
    device: str, packages: Sequence[str], copy_bytes_per_second: float | None = None
) -> Environment:
    """Return date, hardware and versions, in the order in which they are shown.

    packages: names of packages whose versions matter, besides torch.
    """
    info = read_build_info(library_path())
    lines = [
        ("date", datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")),
        ("CPU", f"{os.cpu_count()} cores, {cpu_name()}; load average at the start {os.getloadavg()[0]:.1f}"),
        ("system", f"{platform.system()} {platform.release()}, Python {platform.python_version()}"),
        ("lensbox", f"{info.version}, op library built for torch {info.torch} ({', '.join(info.backends)})"),
        ("torch", torch.__version__),
        *((package, package_version(package)) for package in packages),
    ]
    if copy_bytes_per_second is not None:
        speed = f"{copy_bytes_per_second / 1e9:.4g} GB/s on {device}, read plus written"
        lines.append(("copy bandwidth", speed))
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        gpu = (
            f"{properties.name}, {properties.multi_processor_count} multiprocessors, "
            f"L2 {properties.L2_cache_size / 2**20:.0f} MiB, driver {driver_version()}, "
            f"CUDA {torch.version.cuda}"
        )
        lines.insert(1, ("GPU", gpu))
    return lines


@contextlib.contextmanager
def cpu_threads(count: int) -> Iterator[None]:
    """Let torch compute with `count` threads inside the block; 0 leaves its choice."""
    usual = torch.get_num_threads()
    if count:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(usual)


def copy_bandwidth(device: str, threads: int = 1) -> float:
    """Measure a large copy: bytes per second, read plus written, the median of 10."""
    count = _COPY_BYTES[device] // 4
    with cpu_threads(threads):
        source = torch.rand(count, device=device)
        destination = torch.empty_like(source)
        copy = _copy_on_gpu if device == "cuda" else _copy_on_cpu
        seconds = [copy(source, destination) for _ in range(_COPIES + 1)]
    return 2 * 4 * count / statistics.median(seconds[1:])


def _copy_on_gpu(source: torch.Tensor, destination: torch.Tensor) -> float:
    start = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    start.record()
    destination.copy_(source)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3


def _copy_on_cpu(source: torch.Tensor, destination: torch.Tensor) -> float:
    start = time.perf_counter()
    destination.copy_(source)
    return time.perf_counter() - start
