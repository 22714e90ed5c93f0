"""The description of the machine that figures are taken on."""

import platform

import numpy as np
import pytest
import torch

from lensbox.bench.machine import copy_bandwidth, describe_machine


def test_names_versions_and_speed() -> None:
    lines = dict(describe_machine("cpu", ("numpy", "no-such-package"), 38.9e9))
    assert lines["torch"] == torch.__version__
    assert torch.__version__.partition("+")[0] in lines["lensbox"]
    assert platform.python_version() in lines["system"]
    assert lines["numpy"] == np.__version__
    assert lines["no-such-package"] == "not installed"
    assert lines["copy bandwidth"] == "38.9 GB/s on cpu, read plus written"
    assert "GPU" not in lines
    assert copy_bandwidth("cpu") > 0


@pytest.mark.gpu
def test_names_the_gpu_and_its_driver() -> None:
    lines = dict(describe_machine("cuda", ("triton",), 1e12))
    assert torch.cuda.get_device_name() in lines["GPU"]
    assert "driver unknown" not in lines["GPU"]
