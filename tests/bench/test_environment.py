"""What a run says about the machine, and why the benchmark's own sources could not be built."""

import platform
from pathlib import Path

import numpy as np
import pytest
import torch

from lensbox.bench import extension
from lensbox.bench.bandwidth import cache_bytes
from lensbox.bench.environment import environment
from lensbox.bench.peers.peer import UnavailableError


def test_the_environment_names_versions_and_speed() -> None:
    lines = dict(environment(torch.device("cpu"), ("numpy", "no-such-package"), 38.9e9))
    assert lines["torch"] == torch.__version__
    assert torch.__version__.partition("+")[0] in lines["lensbox"]
    assert platform.python_version() in lines["system"]
    assert lines["numpy"] == np.__version__
    assert lines["no-such-package"] == "not installed"
    assert lines["copy bandwidth"] == "38.9 GB/s on cpu, read plus written"
    assert "GPU" not in lines


@pytest.mark.gpu
def test_the_environment_names_the_gpu_and_its_driver() -> None:
    lines = dict(environment(torch.device("cuda"), ("triton",), 1e12))
    assert torch.cuda.get_device_name() in lines["GPU"]
    assert "driver unknown" not in lines["GPU"]
    assert cache_bytes(torch.device("cuda")) > 1 << 20


def test_missing_sources_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(extension, "SOURCES", tmp_path)
    extension._build.cache_clear()
    try:
        with pytest.raises(UnavailableError, match=r"sources are not installed: empty_op.cpp in "):
            extension.load_extension(torch.device("cpu"))
    finally:
        extension._build.cache_clear()


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Ninja is required to load C++ extensions", "Ninja is required to load C++ extensions"),
        (
            "Error building extension 'x': [1/2] c++ a.cpp\nFAILED\na.cpp:3:1: error: unknown type\nstopped",
            "a.cpp:3:1: error: unknown type",
        ),
        (
            "Error building extension 'x'\n/usr/bin/ld: cannot find -lcudart: No such file\n"
            "collect2: error: ld returned 1",
            "/usr/bin/ld: cannot find -lcudart: No such file",
        ),
        ("", "no message"),
    ],
)
def test_the_telling_line_of_a_failed_build(message: str, expected: str) -> None:
    assert extension._main_line(message) == expected
