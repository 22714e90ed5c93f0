"""Bindings load with no kernels but those of the same headers, whatever file the linker finds."""

import os
import re
import shutil
from pathlib import Path

import pytest
import torch
from programs import REPOSITORY, built_runner, path_with_build_tools, run, run_python

from lensbox.common.machine import minor_version
from lensbox.ops import library_path

_HEADERS = rb"lensbox_kernels_([0-9a-f]{12})"


def test_the_library_names_its_headers() -> None:
    """One name in both parts: the linker ties them where they are two files."""
    assert len(set(re.findall(_HEADERS, library_path().read_bytes())) or {b""}) == 1
    assert re.search(rb"lensbox-build [ -~]* headers=[0-9a-f]{12} ", library_path().read_bytes())
    assert re.search(rb"lensbox-kernels [ -~]* headers=[0-9a-f]{12} ", library_path().read_bytes())


@pytest.fixture(scope="module")
def bindings() -> Path:
    """Build bindings and kernels as two files, as a wheel has them; return the bindings."""
    build = REPOSITORY / "build" / "shared-kernels"
    torch_root = Path(torch.__file__).parent
    options = ("-DLENSBOX_KERNELS=shared", "-DLENSBOX_CUDA=OFF", f"-DLENSBOX_TORCH_ROOT={torch_root}")
    path = {"PATH": path_with_build_tools()}
    run("cmake", "-S", REPOSITORY, "-B", build, "-G", "Ninja", *options, env=path)
    run("cmake", "--build", build, env=path, timeout=900)
    return build / "ops" / f"torch{minor_version(torch.__version__)}" / "liblensbox_ops.so"


def _older_kernels(kernels: Path, folder: Path) -> Path:
    """Return kernels that have every function, and were built from other headers."""
    content = kernels.read_bytes()
    ((digits,),) = [{*re.findall(_HEADERS, content)}]
    return _written(folder, content.replace(digits, b"0" * 12))


def _written(folder: Path, content: bytes) -> Path:
    folder.mkdir()
    path = folder / "liblensbox_kernels.so"
    path.write_bytes(content)
    path.chmod(0o755)
    return path


def _stub(folder: Path) -> Path:
    """Return a library of the name that holds nothing."""
    folder.mkdir()
    source, path = folder / "stub.c", folder / "liblensbox_kernels.so"
    source.write_text("int nothing;\n")
    run("cc", "-shared", "-o", path, source)
    return path


@pytest.mark.exhaustive
def test_refuses_kernels_of_other_headers(bindings: Path, random_path: Path, tmp_path: Path) -> None:
    kernels = bindings.parents[1] / "liblensbox_kernels.so"
    files = {
        "000000000000": _older_kernels(kernels, tmp_path / "older"),
        "no build record": _stub(tmp_path / "stub"),
    }
    program = ("-c", "import lensbox.ops as o, torch; print(o.giou(torch.ones(1, 4), torch.ones(1, 4)))")
    runner = (built_runner(), "selftest", "--artifact", random_path)
    named = {"LENSBOX_OPS_LIBRARY": str(bindings)}
    assert "tensor(" in run_python(*program, env=named).stdout
    run(*runner, env=named)
    for record, other in files.items():
        search = {**named, "LD_LIBRARY_PATH": os.pathsep.join(["/nowhere", str(other.parent)])}
        in_python = run_python(*program, env=search, code=1).stderr
        in_cpp = run(*runner, env=search, code=3).stderr
        for message in (in_python, in_cpp):
            for part in (record, str(other), str(bindings), "headers=", "LD_LIBRARY_PATH"):
                assert part in message, message


@pytest.mark.exhaustive
def test_builds_no_bindings_for_kernels_of_other_headers(bindings: Path, tmp_path: Path) -> None:
    kernels = bindings.parents[1] / "liblensbox_kernels.so"
    older = _older_kernels(kernels, tmp_path / "older")
    build = ("cmake", "-S", REPOSITORY, "-B", tmp_path / "build", "-G", "Ninja", "-DLENSBOX_CUDA=OFF")
    root = f"-DLENSBOX_TORCH_ROOT={Path(torch.__file__).parent}"
    path = {"PATH": path_with_build_tools()}
    message = run(*build, root, f"-DLENSBOX_KERNELS={older}", env=path, code=1).stderr
    assert "headers=000000000000" in message
    shutil.rmtree(tmp_path / "build")
    run(*build, root, f"-DLENSBOX_KERNELS={kernels}", env=path)
