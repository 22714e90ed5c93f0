"""The description of the machine that figures are taken on."""

import platform

import numpy as np
import pytest
import torch

from lensbox.bench.machine import describe_machine


def described(device: str, *packages: str) -> dict[str, str]:
    lines = (line.split(":", 1) for line in describe_machine(device, packages).splitlines())
    return {name: value.strip() for name, value in lines}


def test_names_versions() -> None:
    lines = described("cpu", "numpy", "no-such-package")
    assert lines["torch"] == torch.__version__
    assert torch.__version__.partition("+")[0] in lines["lensbox"]
    assert platform.python_version() in lines["system"]
    assert lines["numpy"] == np.__version__
    assert lines["no-such-package"] == "not installed"
    assert "GPU" not in lines


@pytest.mark.gpu
def test_names_the_gpu_and_its_driver() -> None:
    lines = described("cuda", "triton")
    assert torch.cuda.get_device_name() in lines["GPU"]
    assert "driver unknown" not in lines["GPU"]
