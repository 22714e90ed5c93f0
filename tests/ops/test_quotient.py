"""The division of the CUDA kernels rounds as the CPU's does, for all floats."""

import shutil
import subprocess
from pathlib import Path

import pytest

CHECK = Path(__file__).with_name("quotient_check.cpp")


@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")
def test_every_quotient_is_rounded_as_the_cpu_rounds_it(tmp_path: Path) -> None:
    program = tmp_path / "quotient_check"
    subprocess.run(["c++", "-std=c++20", "-O2", "-ffp-contract=off", CHECK, "-o", program], check=True)
    done = subprocess.run([program], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert int(done.stdout) > 40_000_000
