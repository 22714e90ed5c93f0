"""Build settings of CMake and torch; the build is configured, not compiled."""

import shutil
from pathlib import Path

import pytest
import torch
from built_runner import REPOSITORY, path_with_build_tools
from programs import run

pytestmark = pytest.mark.exhaustive

needs_nvcc = pytest.mark.skipif(
    shutil.which("nvcc") is None and not Path("/usr/local/cuda/bin/nvcc").exists(), reason="needs nvcc"
)
_KERNELS = ("-DLENSBOX_KERNELS=alone", "-DLENSBOX_CUDA=ON")


def configure(build: Path, *options: str, succeeds: bool = True, **variables: str) -> str:
    """Configure the build and return the build commands, or CMake's message if it must fail."""
    environment = {"PATH": f"{path_with_build_tools()}:/usr/local/cuda/bin", "TORCH_CUDA_ARCH_LIST": ""}
    command = ["cmake", "-S", REPOSITORY, "-B", build, "-G", "Ninja", *options]
    done = run(*command, env=environment | variables, code=0 if succeeds else 1)
    return done.stdout + ((build / "build.ninja").read_text() if succeeds else done.stderr)


@needs_nvcc
def test_architectures_of_torch(tmp_path: Path) -> None:
    commands = configure(tmp_path, *_KERNELS, TORCH_CUDA_ARCH_LIST="8.0 9.0a;12.0+PTX")
    assert "CUDA kernels: ON, for 80-real;90a-real;120" in commands
    assert [name in commands for name in ("sm_75", "sm_80", "sm_90a")] == [False, True, True]


def test_rejects_an_unknown_architecture(tmp_path: Path) -> None:
    message = configure(tmp_path, "-DLENSBOX_KERNELS=alone", succeeds=False, TORCH_CUDA_ARCH_LIST="Hopper")
    assert 'got "Hopper"' in " ".join(message.split())


def test_a_plain_build_sets_no_run_path(tmp_path: Path) -> None:
    """CMake's run path for a build folder would end with an empty entry, which means the current folder."""
    torch_folder = f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}"
    commands = configure(tmp_path, "-DLENSBOX_CUDA=OFF", torch_folder)
    assert "liblensbox_ops.so: CXX_SHARED_LIBRARY_LINKER" in commands
    assert "rpath" not in commands


def test_run_path_of_shared_kernels(tmp_path: Path) -> None:
    options = ("-DLENSBOX_KERNELS=shared", "-DLENSBOX_CUDA=OFF", "-DCMAKE_INSTALL_RPATH=/opt/somewhere")
    commands = configure(tmp_path, *options)
    for quoting in ('"', "\\", "$$"):
        commands = commands.replace(quoting, "$" if quoting == "$$" else "")
    assert "-Wl,-rpath,$ORIGIN/..:$ORIGIN:/opt/somewhere" in commands
