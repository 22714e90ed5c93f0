"""What the figures were taken on."""

import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from lensbox.ops import library_path, read_build_info


def environment(
    device: torch.device, packages: Sequence[str], copy_bytes_per_second: float | None = None
) -> list[tuple[str, str]]:
    """Names and values, in the order in which they are shown.

    packages: whose versions matter, besides torch's.
    """
    info = read_build_info(library_path())
    lines = [
        ("date", datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")),
        ("CPU", f"{os.cpu_count()} cores, {_cpu_name()}; load average at the start {os.getloadavg()[0]:.1f}"),
        ("system", f"{platform.system()} {platform.release()}, Python {platform.python_version()}"),
        ("lensbox", f"{info.version}, op library built for torch {info.torch} ({', '.join(info.backends)})"),
        ("torch", torch.__version__),
        *((package, package_version(package)) for package in packages),
    ]
    if copy_bytes_per_second is not None:
        speed = f"{copy_bytes_per_second / 1e9:.4g} GB/s on {device.type}, read plus written"
        lines.append(("copy bandwidth", speed))
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        gpu = (
            f"{properties.name}, {properties.multi_processor_count} multiprocessors, "
            f"L2 {properties.L2_cache_size / 2**20:.0f} MiB, driver {_driver()}, CUDA {torch.version.cuda}"
        )
        lines.insert(1, ("GPU", gpu))
    return lines


def package_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine()


def _driver() -> str:
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return answer.stdout.splitlines()[0].strip() if answer.stdout.strip() else "unknown"
