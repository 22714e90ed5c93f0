"""Build the article's kernel (article_kernel.cu) on first use, as torch.ops.lensbox_bench.

The build needs ninja, nvcc and a C++ compiler. torch's extension cache keeps it.
"""

import os
import sys
from functools import cache
from pathlib import Path

import torch

from lensbox.bench.measure import UnavailableError

SOURCE = Path(__file__).with_suffix(".cu")
# Torch looks for the CUDA runtime beside the nvcc on the PATH, in vain where that is a script elsewhere.
USUAL_CUDA_LIBRARIES = "/usr/local/cuda/lib64"


def load_extension() -> None:
    """Make torch.ops.lensbox_bench.article_sums ready. Raises UnavailableError if the build fails."""
    reason = _build()
    if reason is not None:
        raise UnavailableError(reason)


@cache
def _build() -> str | None:
    """Build and load, once. Return why that failed: a second attempt would fail as slowly."""
    from torch.utils import cpp_extension

    major, minor = torch.cuda.get_device_capability()
    # Ninja is often installed beside this Python.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    try:
        cpp_extension.load(
            name="lensbox_bench",
            sources=[str(SOURCE)],
            extra_cuda_cflags=["-O3", f"-gencode=arch=compute_{major}{minor},code=sm_{major}{minor}"],
            extra_ldflags=[f"-L{USUAL_CUDA_LIBRARIES}"],
            with_cuda=True,
            is_python_module=False,
        )
    except (OSError, RuntimeError, ImportError) as error:
        lines = str(error).splitlines()
        telling = next((line for line in lines if "error:" in line or "cannot find" in line), lines[0])
        return f"the article's kernel could not be built: {telling.strip()}"
    return None
