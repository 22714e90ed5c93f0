"""The installed C++ library, used by the programs of `examples/cpp` and of its page through CMake."""

import json
import re
import shutil
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import programs
import pytest
import torch
from page_blocks import read_blocks
from picture_files import noise
from programs import REPOSITORY, Ended, built_runner, path_with_build_tools, runner_onnxruntime
from runner_answers import answer, run

from lensbox.ops import library_path


def output(*command: object, **options: Any) -> str:
    return ended(*command, code=0, **options).stdout


def ended(*command: object, **options: Any) -> Ended:
    """Run a command without a path of the op library. Compile without optimization and debug information.

    What is installed looks for libtorch beside itself, or where the environment says.
    """
    path = {"LENSBOX_OPS_LIBRARY": "", "PATH": path_with_build_tools(), "CMAKE_BUILD_TYPE": "None"}
    libraries = {"LD_LIBRARY_PATH": str(Path(torch.__file__).parent / "lib")}
    return programs.run(*command, env=path | libraries, **options)


def project_of(section: str, folder: Path) -> list[str]:
    """Write the program and the CMakeLists.txt of a section of docs/cpp.md; return its commands."""
    blocks = read_blocks("docs/cpp.md", section)
    texts = {block.language: block.text for block in blocks}
    (folder / "main.cpp").write_text(texts["cpp"])
    (folder / "CMakeLists.txt").write_text(texts["cmake"])
    return [block.text for block in blocks if block.language == "sh"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the library from the runner's build folder, with the op library; return the prefix."""
    prefix = tmp_path_factory.mktemp("installed")
    output("cmake", "--install", built_runner().parent, "--prefix", prefix)
    shutil.copy(library_path(), prefix / "lib" / "liblensbox_ops.so")
    return prefix


@pytest.fixture(scope="module")
def examples(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the examples that need no headers of libtorch; return their folder."""
    folder = tmp_path_factory.mktemp("examples")
    source = REPOSITORY / "examples" / "cpp"
    output("cmake", "-S", source, "-B", folder, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={installed}")
    output("cmake", "--build", folder, "--target", "find_objects", "camera_frames")
    return folder


def test_a_program_finds_what_the_runner_finds(examples: Path, random_path: Path, tmp_path: Path) -> None:
    photo, damaged = tmp_path / "photo.png", tmp_path / "damaged.pt"
    noise("RGB").save(photo)
    lines = output(examples / "find_objects", random_path, photo).splitlines()
    (image,) = answer("detect", "--artifact", random_path, "--image", photo)["images"]
    assert lines
    for line, detection in zip(lines, image["detections"], strict=True):
        score, *box = map(float, line.split()[-5:])
        assert [score, *box] == pytest.approx([detection["score"], *detection["box"]], rel=1e-4)
    damaged.write_bytes(random_path.read_bytes()[:-100])
    assert "damaged" in ended(examples / "find_objects", damaged, photo, code=3).stderr
    missing = ended(examples / "find_objects", random_path, tmp_path / "none.png", code=4)
    assert "no such file" in missing.stderr


def test_threads_detect_in_frames_in_memory(examples: Path, random_path: Path) -> None:
    frames = [np.arange(90 * 70, dtype=np.uint8) + np.uint8(number) for number in range(6)]
    sent = b"".join(frame.tobytes() for frame in frames)
    raw = ("--raw", "90x70", "gray8")
    printed = run("detect", "--artifact", random_path, *raw, code=0, text=False, input=sent).stdout
    documents = map(json.loads, printed.splitlines())
    expected = [f"frame {line['frame']}: {len(line['detections'])}" for line in documents]
    lines = output(examples / "camera_frames", random_path, "90", "70", "6", "3").splitlines()
    assert sorted(lines) == expected


@pytest.mark.exhaustive
def test_tensors_go_in_and_out(examples: Path, random_path: Path) -> None:
    output("cmake", "--build", examples, "--target", "canvas_tensors")
    printed = output(examples / "canvas_tensors", random_path)
    assert re.match(r"boxes \[2, \d+, 4\] on cpu, of which count \d+\n", printed)


@pytest.mark.exhaustive
def test_a_network_of_torch_export_runs(examples: Path, tmp_path: Path) -> None:
    """The example, of which docs/programs.md shows a part."""
    output("cmake", "--build", examples, "--target", "run_program")
    (block,) = (
        block
        for block in read_blocks("docs/programs.md", "A network of torchvision in C++")
        if block.language == "cpp"
    )
    assert textwrap.indent(block.text, "    ") in (REPOSITORY / "examples/cpp/run_program.cpp").read_text()
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, 32), torch.nn.Flatten(), torch.nn.LazyLinear(5))
    picture = torch.zeros(2, 3, 224, 224)
    network(picture)
    sizes = ({0: torch.export.Dim("batch")},)
    torch.export.save(torch.export.export(network, (picture,), dynamic_shapes=sizes), tmp_path / "net.pt2")
    printed = output(examples / "run_program", tmp_path / "net.pt2")
    assert re.match(r"CPUFloatType \[1, 5\], the largest is number [0-4]\n", printed)
    assert "none.pt2" in ended(examples / "run_program", tmp_path / "none.pt2", code=3).stderr


@pytest.mark.exhaustive
def test_the_quick_start_of_the_page_builds_and_runs(
    installed: Path, random_path: Path, tmp_path: Path
) -> None:
    """From the page: the program, its CMakeLists.txt, and the paths that the commands look up."""
    install, build, *_ = project_of("Quick start with libtorch", tmp_path)
    for lookup in re.findall(r"\$\((python .*?\))'\)", install):
        assert Path(output("sh", "-c", f"{lookup}'").strip()).exists()
    build = build.replace("/opt/lensbox", str(installed)).replace("detector.pt", str(random_path))
    output("sh", "-ec", build, cwd=tmp_path)
    missing = ended(tmp_path / "build" / "my_program", tmp_path / "none.pt", code=3)
    assert "none.pt" in missing.stderr


def test_the_installed_program_finds_the_op_library(installed: Path, random_path: Path) -> None:
    report = json.loads(output(installed / "bin" / "lensbox_runner", "selftest", "--artifact", random_path))
    assert report["passed"]


def test_cmake_finds_both_halves_of_this_version_only(installed: Path, tmp_path: Path) -> None:
    def find(wanted: str, code: int) -> str:
        (tmp_path / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.24)\nproject(wants_it LANGUAGES CXX)\n"
            f"find_package(Lensbox {wanted})\n"
        )
        build = ("-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={installed}")
        return " ".join(ended("cmake", "-S", tmp_path, *build, code=code).stderr.split())

    find("REQUIRED COMPONENTS runtime torch", code=0)
    assert 'requested version "0.9"' in find("0.9 REQUIRED", code=1)


def test_names_no_folder_of_the_machine(installed: Path) -> None:
    build = str(built_runner().parent).encode()
    torch_folder = str(Path(torch.__file__).parent).encode()
    for path in (
        path for path in installed.rglob("*") if path.is_file() and path.name != "liblensbox_ops.so"
    ):
        assert build not in path.read_bytes(), path
        assert torch_folder not in path.read_bytes(), path


def test_exports_only_the_interface(installed: Path) -> None:
    library = installed / "lib" / "liblensbox_runtime.so"
    symbols = output("nm", "--dynamic", "--demangle", "--defined-only", library)
    shown = [line.split(maxsplit=2)[2] for line in symbols.splitlines()]
    assert "lensbox::device_of(lensbox::Detector const&)" in shown
    own = re.compile(r"((typeinfo|typeinfo name|vtable) for )?lensbox::")
    assert [symbol for symbol in shown if not own.match(symbol)] == []


@pytest.mark.exhaustive
def test_a_program_of_ones_own_loads_an_artifact_with_the_ops_alone(
    random_path: Path, tmp_path: Path
) -> None:
    """The program of the page names no symbol of the op library, which the linker must keep."""
    ((_, build),) = read_blocks("docs/cpp.md", "The ops alone")
    build = build.replace("build/plain", str(tmp_path)).replace("detector.pt", str(random_path))
    output("sh", "-ec", build, cwd=REPOSITORY)
    needed = output("readelf", "--dynamic", tmp_path / "plain_program")
    assert "[liblensbox_ops.so]" in needed


@pytest.mark.exhaustive
def test_a_folder_for_a_device_has_all_but_the_libraries_of_glibc(random_path: Path, tmp_path: Path) -> None:
    runner = tmp_path / "device" / "bin" / "lensbox_runner"
    output(
        "cmake", "--install", built_runner().parent, "--component", "device", "--prefix", runner.parents[1]
    )
    lines = programs.run("ldd", runner, code=0).stdout.splitlines()  # without LD_LIBRARY_PATH
    outside = {line.split()[0] for line in lines if f" {tmp_path}" not in line}
    glibc = {"libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1"}
    assert {name for name in outside if not name.startswith(("/lib", "linux-vdso"))} <= glibc
    library = tmp_path / "device" / "lib"
    assert (library / "libonnxruntime.so.1").exists() == (runner_onnxruntime() is not None)
    shutil.copy(library_path(), library / "liblensbox_ops.so")
    tested = programs.run(runner, "selftest", "--artifact", random_path, env={"LENSBOX_OPS_LIBRARY": ""})
    assert json.loads(tested.stdout)["passed"]


@pytest.mark.exhaustive
def test_builds_as_a_subdirectory_of_a_project(tmp_path: Path) -> None:
    """Compile a program; the library itself would take minutes."""
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.24)\nproject(contains_it LANGUAGES CXX)\n"
        f"add_subdirectory({REPOSITORY / 'cpp_runtime'} lensbox)\n"
        "add_executable(simple simple.cpp)\ntarget_link_libraries(simple PRIVATE lensbox::runtime)\n"
    )
    (tmp_path / "simple.cpp").write_text(
        "#include <lensbox/detector.h>\n#include <lensbox/version.h>\n"
        "int main() { return lensbox::onnxruntime_version() == LENSBOX_VERSION; }\n"
    )
    build = tmp_path / "build"
    prefix = f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}"
    output("cmake", "-S", tmp_path, "-B", build, "-G", "Ninja", prefix)
    output("cmake", "--build", build, "--target", "CMakeFiles/simple.dir/simple.cpp.o")
    targets = output("cmake", "--build", build, "--target", "help")
    assert "liblensbox_runtime.so" in targets
    assert "lensbox_runner" not in targets
