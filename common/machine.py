"""Facts about the machine. Imports no torch."""

import contextlib
import ctypes
import gc
import os
import platform
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

# Parameters of mallopt in glibc's malloc.h, and the largest threshold that it takes.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_LARGEST_MMAP_THRESHOLD = 32 << 20
_NEVER = 2**31 - 1


def package_version(package: str) -> str:
    """Return the version of an installed package, or "not installed"."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def library_folders(part: str) -> list[Path]:
    """Return the folders that may hold a shared library of a part of Lensbox, such as "ops".

    It lies beside the Python files; those of an editable install are elsewhere.
    """
    folders = [Path(__file__).parents[1] / part]
    with contextlib.suppress(PackageNotFoundError):
        folders.append(Path(str(distribution("lensbox").locate_file(f"lensbox/{part}"))))
    return folders


def minor_version(version: str) -> str:
    """Return '2.13' of '2.13.0+cpu'."""
    return ".".join(version.split(".")[:2])


def has_torchscript() -> bool:
    """Return whether torch supports TorchScript on this Python."""
    return sys.version_info < (3, 14)


def cpu_entry(names: str) -> str:
    """Return the first entry of these names in /proc/cpuinfo, or "". names: such as "flags|Features"."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    found = re.search(rf"^(?:{names})\s*:\s*(.*)$", text, re.MULTILINE)
    return found[1].strip() if found else ""


def cpu_name() -> str:
    """Return the model of the CPU, or its architecture if the model is unknown."""
    return cpu_entry("model name") or platform.processor() or platform.machine()


def driver_version() -> str:
    """Return the version of NVIDIA's driver, or "unknown"."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return answer.stdout.splitlines()[0].strip() if answer.stdout.strip() else "unknown"


def keep_freed_memory() -> bool:
    """Let this process keep the memory that it frees; return whether it does.

    By default glibc may return large blocks to the system after each call, and the next call pays for page
    faults: a batch of 8 in TorchScript takes 1.5 times as long on a CPU. Do nothing if the C library is not
    glibc, or if GLIBC_TUNABLES configures malloc.
    """
    if not sys.platform.startswith("linux") or "glibc.malloc." in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # missing in some C libraries
    if mallopt is None:
        return False
    return bool(mallopt(_M_TRIM_THRESHOLD, _NEVER)) and bool(
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
    )


def exempt_objects() -> None:
    """Exempt all existing objects from garbage collection, whose runs would stop all threads for 0.1 s."""
    gc.collect()
    gc.freeze()
