"""The report: names and values. Whatever is broken becomes a line of it, since that is when it is needed."""

import os
import platform
from collections.abc import Iterator

from lensbox.common.machine import cpu_name, driver_version, package_version
from lensbox.runtime.supported import verdict

# Of the extras, the packages whose versions change results or speed.
PACKAGES = ("numpy", "pillow", "simplejpeg", "onnxruntime", "fastapi", "uvicorn", "triton", "torchvision")
VARIABLES = ("LENSBOX_OPS_LIBRARY", "CUDA_VISIBLE_DEVICES", "ATEN_CPU_CAPABILITY", "OMP_NUM_THREADS")


def report() -> list[tuple[str, str]]:
    """Names and values, in the order in which they are shown. Never raises."""
    return [
        ("lensbox", package_version("lensbox")),
        ("Python", verdict("python", platform.python_version())),
        ("system", f"{platform.platform()}, {platform.libc_ver()[0] or 'libc'} {platform.libc_ver()[1]}"),
        ("CPU", f"{os.cpu_count()} cores, {cpu_name()}"),
        *_torch(),
        *((package, package_version(package)) for package in PACKAGES),
        *((name, os.environ[name]) for name in VARIABLES if name in os.environ),
    ]


def _torch() -> Iterator[tuple[str, str]]:
    """torch, the op library, and the devices."""
    try:
        import torch
    except Exception as error:  # a torch that cannot be imported is a finding
        yield "torch", f"{package_version('torch')}, cannot be imported: {_in_a_line(error)}"
        return
    yield "torch", verdict("torch", torch.__version__)
    yield (
        "torch's build",
        (f"CUDA {torch.version.cuda or 'none'}, instructions {torch.backends.cpu.get_cpu_capability()}"),
    )
    yield from _op_library()
    try:
        yield from _devices()
    except Exception as error:
        yield "GPU", f"cannot be asked: {_in_a_line(error)}"


def _op_library() -> Iterator[tuple[str, str]]:
    try:
        # Importing the package loads the library.
        from lensbox.ops import library_path, read_build_info

        path = library_path()
        info = read_build_info(path)
    except Exception as error:
        yield "op library", f"cannot be used: {_in_a_line(error)}"
        return
    yield "op library", f"{path}, loaded"
    backends = ", ".join(info.backends)
    yield "its build", f"{info.version} for torch {info.torch} ({backends}); {info.build or 'not recorded'}"


def _devices() -> Iterator[tuple[str, str]]:
    import torch

    if not torch.cuda.is_available():
        yield "GPU", f"none that torch can use (driver {driver_version()})"
        return
    for index in range(torch.cuda.device_count()):
        found = torch.cuda.get_device_properties(index)
        yield (
            f"cuda:{index}",
            (
                f"{found.name}, compute capability {found.major}.{found.minor}, "
                f"{found.total_memory / 2**30:.0f} GiB, driver {driver_version()}"
            ),
        )


def _in_a_line(text: object) -> str:
    return " ".join(str(text).split()) or type(text).__name__
