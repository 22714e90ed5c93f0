"""What the figures were taken on."""

import os
import platform
from collections.abc import Sequence
from datetime import datetime, timezone

import torch

from lensbox.common.machine import cpu_name, driver_version, package_version
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
        ("CPU", f"{os.cpu_count()} cores, {cpu_name()}; load average at the start {os.getloadavg()[0]:.1f}"),
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
            f"L2 {properties.L2_cache_size / 2**20:.0f} MiB, driver {driver_version()}, "
            f"CUDA {torch.version.cuda}"
        )
        lines.insert(1, ("GPU", gpu))
    return lines
