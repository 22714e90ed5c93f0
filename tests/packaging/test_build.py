"""make checks Python, torch and the compiler before it starts; build options of CMake, without compiling."""

import os
import re
import shutil
from pathlib import Path

import pytest
import torch
from programs import REPOSITORY, built_runner, path_with_build_tools, run, run_python


def make(*arguments: str, code: int = 0) -> str:
    return run("make", "--no-print-directory", *arguments, cwd=REPOSITORY, code=code).stdout


def python_of(folder: Path, script: str) -> str:
    """Write an interpreter that only says something of its version."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return f"PYTHON={path}"


OLD, FITS = "case $1 in -c) exit 1;; --version) echo Python 3.9.2;; esac", "exit 0"
NEWER = "case $2 in *'>= (3, 14)'*) echo 2;; esac"


def test_names_an_unsupported_python_and_a_missing_compiler(tmp_path: Path) -> None:
    place = f"VENV={tmp_path / 'venv'}"
    assert "Python 3.9.2" in make("demo", place, python_of(tmp_path, OLD), code=2)
    printed = make("demo", place, python_of(tmp_path, FITS), "CXX=no-such-compiler", code=2)
    assert "no-such-compiler" in printed
    assert list(tmp_path.iterdir()) == [tmp_path / "python"]


def test_reinstalls_another_torch(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    stamp = tmp_path / "bin" / ".torch"
    stamp.write_text("torch==2.12.0\n")
    for versions, reinstalls in ((), False), (("torch==2.12.0",), False), (("torch==2.13.0",), True):
        plan = make("--dry-run", "ops", f"VENV={tmp_path}", *(f"TORCH={version}" for version in versions))
        assert ("Installing torch==2.13.0" in plan) == reinstalls
        # The recipe writes what the next run compares.
        assert (f"echo 'torch==2.13.0' > {stamp}" in plan) == reinstalls


def test_python_3_14_makes_a_program(tmp_path: Path) -> None:
    for script, name in ((NEWER, "detector.pt2"), (FITS, "detector.pt")):
        plan = make("--dry-run", "artifact", f"VENV={tmp_path}", python_of(tmp_path, script))
        assert f"--output artifacts/{name}\n" in plan


_IMPORTED = """
import runpy, sys
from pathlib import Path

sys.argv[0] = "export/script_model.py"
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as ended:
    assert not ended.code
for module in list(sys.modules.values()):
    path = Path(getattr(module, "__file__", None) or "/").resolve()
    if path.is_file() and path.is_relative_to(Path.cwd()) and ".venv" not in path.parts:
        print(path.relative_to(Path.cwd()))
"""


def prerequisites_of_the_artifact() -> set[str]:
    printed = make("--dry-run", "--print-data-base", "artifact")
    (line,) = re.findall(r"^artifacts/detector\.pt2?: (.*)$", printed, re.M)
    return set(line.split("|")[0].split())


def test_the_artifact_depends_on_weights_and_code_but_not_on_tests() -> None:
    found = prerequisites_of_the_artifact()
    assert {"model/weights/face_detector.safetensors", "runtime/file/seal.py", "export/cli.py"} <= found
    assert not [name for name in found if name.split("/")[0] in ("serve", "train", "tests", "client")]


@pytest.mark.exhaustive
def test_the_artifact_depends_on_every_module_that_the_export_imports(tmp_path: Path) -> None:
    """An edit of any of them makes `make artifact` export anew."""
    words = ("-c", _IMPORTED, "--output", tmp_path / "detector.pt")
    imported = run_python(*words, cwd=REPOSITORY).stdout.splitlines()
    modules = {line for line in imported if line.endswith(".py")}
    assert len(modules) > 60
    assert modules - prerequisites_of_the_artifact() == set()


# --- CMake ---

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
@pytest.mark.exhaustive
def test_architectures_of_torch(tmp_path: Path) -> None:
    commands = configure(tmp_path, *_KERNELS, TORCH_CUDA_ARCH_LIST="8.0 9.0a;12.0+PTX")
    assert "CUDA kernels: ON, for 80-real;90a-real;120" in commands
    assert [name in commands for name in ("sm_75", "sm_80", "sm_90a")] == [False, True, True]


@pytest.mark.exhaustive
def test_rejects_an_unknown_architecture(tmp_path: Path) -> None:
    message = configure(tmp_path, "-DLENSBOX_KERNELS=alone", succeeds=False, TORCH_CUDA_ARCH_LIST="Hopper")
    assert 'got "Hopper"' in " ".join(message.split())


@pytest.mark.exhaustive
def test_a_plain_build_sets_no_run_path(tmp_path: Path) -> None:
    """CMake's run path for a build folder would end with an empty entry, which means the current folder."""
    torch_folder = f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}"
    commands = configure(tmp_path, "-DLENSBOX_CUDA=OFF", torch_folder)
    assert "liblensbox_ops.so: CXX_SHARED_LIBRARY_LINKER" in commands
    assert "rpath" not in commands


@pytest.mark.exhaustive
def test_run_path_of_shared_kernels(tmp_path: Path) -> None:
    options = ("-DLENSBOX_KERNELS=shared", "-DLENSBOX_CUDA=OFF", "-DCMAKE_INSTALL_RPATH=/opt/somewhere")
    commands = configure(tmp_path, *options)
    for quoting in ('"', "\\", "$$"):
        commands = commands.replace(quoting, "$" if quoting == "$$" else "")
    assert "-Wl,-rpath,$ORIGIN/..:$ORIGIN:/opt/somewhere" in commands


@pytest.mark.exhaustive
def test_compilers_never_fuse_a_product_and_a_sum(tmp_path: Path) -> None:
    """ARM, which has the instructions in its baseline, would round differently from x86."""
    kernels = configure(tmp_path, "-DLENSBOX_KERNELS=alone", "-DLENSBOX_CUDA=OFF")
    runner = (built_runner().parent / "build.ninja").read_text()
    for commands in (kernels, runner):
        flags = re.findall(r"^  FLAGS = (.*-std=.*)$", commands, re.M)
        assert flags
        assert [line for line in flags if "-ffp-contract=off" not in line] == []


# A cross build for this same machine: CMake looks for everything below an empty folder.
@pytest.fixture
def cross(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "toolchain.cmake").write_text(
        "set(CMAKE_SYSTEM_NAME Linux)\nset(CMAKE_SYSTEM_PROCESSOR aarch64)\n"
        f"set(CMAKE_FIND_ROOT_PATH {tmp_path}/root)\n"
        "foreach(kind LIBRARY INCLUDE PACKAGE)\n  set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)\nendforeach()\n"
    )
    return ("-DLENSBOX_CUDA=OFF", f"-DCMAKE_TOOLCHAIN_FILE={tmp_path}/toolchain.cmake")


@pytest.mark.exhaustive
def test_a_cross_build_does_not_ask_for_this_machines_torch(cross: tuple[str, ...], tmp_path: Path) -> None:
    message = " ".join(configure(tmp_path / "build", *cross, succeeds=False).split())
    assert 'libtorch 2.11 or later for aarch64 was not found, got LENSBOX_TORCH_ROOT=""' in message


@pytest.mark.exhaustive
def test_a_cross_build_takes_the_torch_that_is_named(cross: tuple[str, ...], tmp_path: Path) -> None:
    folder = Path(torch.__file__).parent
    for name, place in (
        ("ROOT", f"-DLENSBOX_TORCH_ROOT={folder}"),
        ("RELATIVE", f"-DLENSBOX_TORCH_ROOT={os.path.relpath(folder)}"),
        ("PREFIX", f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}"),
    ):
        assert f"torch {torch.__version__.split('+')[0]} at {folder}," in configure(
            tmp_path / name, *cross, place
        )


@pytest.mark.parametrize("source", [REPOSITORY, REPOSITORY / "cpp_runtime"], ids=["package", "runtime"])
@pytest.mark.exhaustive
def test_paths_may_be_relative_to_the_callers_folder(source: Path, tmp_path: Path) -> None:
    """Paths of any type: pip's --config-settings gives cmake.define.NAME the type STRING."""
    named, found = tmp_path / "torch", Path(torch.__file__).parent
    named.symlink_to(found)
    for file in ("include/jpeglib.h", "lib/libjpeg.so"):
        (tmp_path / "images" / file).parent.mkdir(parents=True)
        (tmp_path / "images" / file).write_text("#define JPEG_LIB_VERSION 62\n")
    for number, (options, variables, folder) in enumerate(
        (
            (("-DLENSBOX_TORCH_ROOT=torch", "-DJPEG_ROOT:STRING=images"), {}, named),
            (("-DLENSBOX_TORCH_ROOT:STRING=torch",), {"JPEG_ROOT": "images"}, named),
            (("-DCMAKE_PREFIX_PATH=torch;images",), {}, found),
        )
    ):
        command = ("cmake", "-S", source, "-B", f"build{number}", "-G", "Ninja", *options)
        environment = {"PATH": path_with_build_tools()} | variables
        printed = run(*command, "-DLENSBOX_CUDA=OFF", env=environment, cwd=tmp_path, code=0).stdout
        assert f"torch {torch.__version__.split('+')[0]} at {folder}," in printed
        assert f"Found JPEG: {tmp_path}/images/lib/libjpeg.so" in printed


def test_variables_that_name_no_path_stay_as_they_are(tmp_path: Path) -> None:
    paths = REPOSITORY / "cpp_runtime" / "cmake" / "AbsolutePaths.cmake"
    shown = "message([$ENV{JPEG_ROOT}] [$ENV{PNG_ROOT}] [$ENV{ZLIB_ROOT}] [${ONNXRUNTIME_ROOT}])"
    (tmp_path / "show.cmake").write_text(f"include({paths})\n{shown}\n")
    (tmp_path / "images").mkdir()
    environment = {"PATH": path_with_build_tools(), "JPEG_ROOT": "images", "PNG_ROOT": "", "ZLIB_ROOT": "/z"}
    ended = run("cmake", "-P", "show.cmake", env=environment, cwd=tmp_path, code=0)
    assert ended.stderr == f"[{tmp_path}/images][][/z][]\n"


@pytest.mark.exhaustive
def test_a_cross_build_refuses_another_machines_torch(cross: tuple[str, ...], tmp_path: Path) -> None:
    foreign, own = tmp_path / "torch", Path(torch.__file__).parent
    (foreign / "lib").mkdir(parents=True)
    (foreign / "include").symlink_to(own / "include")
    (foreign / "lib" / "libc10.so").symlink_to(own / "lib" / "libc10.so")
    library = bytearray((own / "lib" / "libc10.so").read_bytes())
    library[18] = {0xB7: 0x3E}.get(library[18], 0xB7)  # the field of the machine: x86-64, elsewhere aarch64
    (foreign / "lib" / "libtorch_cpu.so").write_bytes(library)
    place = f"-DLENSBOX_TORCH_ROOT={foreign}"
    message = configure(tmp_path / "build", *cross, place, succeeds=False)
    assert f"The libtorch at {foreign} cannot be linked" in " ".join(message.split())
    assert "libtorch_cpu.so" in message
    assert "libcudart.so.13" in message


@pytest.mark.parametrize("has_git", [True, False])
def test_sources_of_the_makefile_leave_out_builds(has_git: bool, tmp_path: Path) -> None:
    shutil.copy(REPOSITORY / "Makefile", tmp_path)
    (tmp_path / ".gitignore").write_text("/examples/*/build/\n")
    for name in ("op.cpp", "gone.cpp", "notes.md", "build/generated.cpp"):
        path = tmp_path / "examples" / "op" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    if has_git:
        run("git", "init", "--quiet", tmp_path)
        run("git", "add", ".", cwd=tmp_path)
    (tmp_path / "examples" / "op" / "gone.cpp").unlink()  # deleted since
    (tmp_path / "examples" / "op" / "new.h").touch()  # not added yet
    (tmp_path / "show.mk").write_text("include Makefile\nshow:\n\t@echo $(call sources,examples)\n")
    shown = run("make", "--silent", "-f", "show.mk", "show", cwd=tmp_path).stdout
    assert sorted(shown.split()) == ["examples/op/new.h", "examples/op/op.cpp"]
