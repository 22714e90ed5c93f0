"""Skip tests that need torchvision where it cannot be imported."""

import functools
import subprocess
import sys

import pytest

_IMPORT = "import torch, torchvision; torch.ops.torchvision.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)"


def require_torchvision() -> None:
    """Skip the test if torchvision is missing or does not fit the installed torch."""
    if reason := _reason():
        pytest.skip(f"needs torchvision: {reason}")


@functools.cache
def _reason() -> str:
    # In another process: a failed import may leave its operators registered.
    result = subprocess.run([sys.executable, "-c", _IMPORT], capture_output=True, text=True, check=False)
    return result.stderr.strip().splitlines()[-1] if result.returncode != 0 else ""
