"""The description of the machine that figures are taken on."""

import os
import platform
from collections.abc import Sequence
from datetime import datetime, timezone

import torch

from lensbox.common.machine import cpu_name, driver_version, package_version
from lensbox.ops import library_path, read_build_info


def describe_machine(device: str, packages: Sequence[str]) -> str:
    """Return date, hardware and versions, a line each. packages: whose versions matter, besides torch."""
    info = read_build_info(library_path())
    lines = [
        ("date", datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")),
        ("CPU", f"{os.cpu_count()} cores, {cpu_name()}; load average at the start {os.getloadavg()[0]:.1f}"),
        ("system", f"{platform.system()} {platform.release()}, Python {platform.python_version()}"),
        ("lensbox", f"{info.version}, op library built for torch {info.torch} ({', '.join(info.backends)})"),
        ("torch", torch.__version__),
        *((package, package_version(package)) for package in packages),
    ]
    if device == "cuda":
        gpu = torch.cuda.get_device_properties(0)
        name = f"{gpu.name}, {gpu.multi_processor_count} multiprocessors"
        lines.insert(1, ("GPU", f"{name}, driver {driver_version()}, CUDA {torch.version.cuda}"))
    return "\n".join(f"{name + ':':<24}{value}" for name, value in lines)
