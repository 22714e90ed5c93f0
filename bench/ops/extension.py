"""Build the benchmark's own C++ and CUDA sources (csrc/) on first use, as torch.ops.lensbox_bench.

The build needs ninja and a C++ compiler, with a GPU also nvcc. torch's extension cache keeps it.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch

from lensbox.bench.runner import UnavailableError

SOURCES = Path(__file__).parents[1] / "csrc"
CPU_SOURCES = ["empty_op.cpp"]
# Torch looks for the CUDA runtime beside the nvcc on the PATH, in vain where that is a script elsewhere.
USUAL_CUDA_LIBRARIES = "/usr/local/cuda/lib64"
CUDA_SOURCES = ["article_kernel.cu", "empty_kernel.cu", "exercise_kernel.cu"]


def load_extension(device: torch.device) -> None:
    """Make torch.ops.lensbox_bench ready for `device`. Raises UnavailableError if the build fails."""
    reason = _build(device.type == "cuda")
    if reason is not None:
        raise UnavailableError(reason)


@cache
def _build(with_cuda: bool) -> str | None:
    """Build and load, once. Return why that failed: a second attempt would fail as slowly."""
    names = CPU_SOURCES + (CUDA_SOURCES if with_cuda else [])
    from torch.utils import cpp_extension

    if with_cuda:
        major, minor = torch.cuda.get_device_capability()
        cuda_flags = ["-O3", f"-gencode=arch=compute_{major}{minor},code=sm_{major}{minor}"]
    else:
        cuda_flags = []
    try:
        with _own_programs_on_path():
            cpp_extension.load(
                name="lensbox_bench_cuda" if with_cuda else "lensbox_bench_cpu",
                sources=[str(SOURCES / name) for name in names],
                extra_cflags=["-O3"],
                extra_cuda_cflags=cuda_flags,
                extra_ldflags=[f"-L{USUAL_CUDA_LIBRARIES}"] if with_cuda else [],
                with_cuda=with_cuda,
                is_python_module=False,
            )
    except (OSError, RuntimeError, ImportError) as error:
        return f"the benchmark's sources could not be built: {_main_line(str(error))}"
    return None


@contextmanager
def _own_programs_on_path() -> Iterator[None]:
    """Put the folder of this Python on the PATH: ninja is often installed there."""
    path = os.environ.get("PATH", "")
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), path])
    try:
        yield
    finally:
        os.environ["PATH"] = path


def _main_line(message: str) -> str:
    """Return the first error line of a compiler or linker, or its first line."""
    lines = [line.strip() for line in message.splitlines() if line.strip()] or ["no message"]
    # The first line is torch's own: "Error building extension ...".
    telling = [line for line in lines[1:] if "error:" in line or "cannot find" in line]
    return telling[0] if telling else lines[0]
