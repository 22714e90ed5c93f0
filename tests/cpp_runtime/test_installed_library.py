"""The installed C++ library, used by the programs of `examples/cpp` through CMake."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from built_runner import REPOSITORY, path_with_build_tools
from cpp_runtime.conftest import OPS_LIBRARY
from cpp_runtime.image_files import noise
from cpp_runtime.running import Run

PAGE = (REPOSITORY / "docs" / "cpp.md").read_text(encoding="utf-8")
HEADERS = REPOSITORY / "cpp_runtime" / "include" / "lensbox"


def run(*command: "str | Path", stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    """Run a command without the environment variable that names the op library."""
    environment = {key: value for key, value in os.environ.items() if key != "LENSBOX_OPS_LIBRARY"}
    environment["PATH"] = path_with_build_tools()
    return subprocess.run(command, input=stdin, capture_output=True, check=False, env=environment)


def output(*command: "str | Path", stdin: bytes = b"") -> str:
    result = run(*command, stdin=stdin)
    assert result.returncode == 0, (result.stdout + result.stderr).decode()
    return result.stdout.decode()


@pytest.fixture(scope="module")
def installed(runner: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the library from the runner's build folder, with the op library; returns the prefix."""
    prefix = tmp_path_factory.mktemp("installed")
    output("cmake", "--install", runner.parent, "--prefix", prefix)
    shutil.copy(OPS_LIBRARY, prefix / "lib" / "liblensbox_ops.so")
    return prefix


@pytest.fixture(scope="module")
def examples(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the examples; returns their folder."""
    folder = tmp_path_factory.mktemp("examples")
    source = REPOSITORY / "examples" / "cpp"
    output("cmake", "-S", source, "-B", folder, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={installed}")
    output("cmake", "--build", folder)
    return folder


def test_a_program_finds_what_the_runner_finds(
    examples: Path, run: Run, artifact: Path, tmp_path: Path
) -> None:
    photo = tmp_path / "photo.png"
    noise("RGB").save(photo)
    lines = output(examples / "find_objects", artifact, photo).splitlines()
    (image,) = run("detect", "--artifact", artifact, "--image", photo).json()["images"]
    assert lines
    assert len(lines) == len(image["detections"])
    for line, detection in zip(lines, image["detections"], strict=True):
        score, *box = map(float, line.split()[-5:])
        assert [score, *box] == pytest.approx([detection["score"], *detection["box"]], rel=1e-4)


def test_a_program_exits_with_the_code_of_the_error(examples: Path, artifact: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.pt"
    damaged.write_bytes(artifact.read_bytes()[:-100])
    result = run(examples / "find_objects", damaged, "photo.png")
    assert (result.returncode, b"damaged" in result.stderr) == (3, True)
    result = run(examples / "find_objects", artifact, tmp_path / "none.png")
    assert (result.returncode, b"no such file" in result.stderr) == (4, True)


def test_threads_detect_in_frames_in_memory(examples: Path, artifact: Path, runner: Path) -> None:
    frames = [np.arange(90 * 70, dtype=np.uint8) + np.uint8(number) for number in range(6)]
    done = subprocess.run(
        [runner, "detect", "--artifact", artifact, "--raw", "90x70", "gray8", "--ops", OPS_LIBRARY],
        input=b"".join(frame.tobytes() for frame in frames),
        capture_output=True,
        check=True,
    )
    expected = [
        f"frame {line['frame']}: {len(line['detections'])}"
        for line in map(json.loads, done.stdout.splitlines())
    ]
    lines = output(examples / "camera_frames", artifact, "90", "70", "6", "3").splitlines()
    assert sorted(lines) == expected


def test_a_view_without_its_format_does_not_compile(installed: Path) -> None:
    source = "#include <lensbox/image_view.h>\nlensbox::ImageView view{.data = nullptr, .width = 1%s};\n"
    compiler = os.environ.get("CXX", "c++")
    command: list[str | Path] = [compiler, "-fsyntax-only", "-I", installed / "include", "-x", "c++", "-"]
    full = source % ", .height = 1, .stride = 1, .format = lensbox::PixelFormat::kGray8"
    assert run(*command, "-std=c++20", stdin=full.encode()).returncode == 0
    assert run(*command, "-std=c++20", stdin=(source % "").encode()).returncode != 0
    old = run(*command, "-std=c++17", stdin=full.encode())
    assert b"Lensbox needs C++20" in old.stderr


def test_the_quick_start_of_the_page_builds_and_runs(installed: Path, artifact: Path, tmp_path: Path) -> None:
    """From the page: the program, its CMakeLists.txt, and the paths that the commands look up."""
    blocks = dict(re.findall(r"```(cpp|cmake)\n(.*?)```", PAGE, flags=re.DOTALL))
    (tmp_path / "main.cpp").write_text(blocks["cpp"])
    (tmp_path / "CMakeLists.txt").write_text(blocks["cmake"])
    commands = re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL)
    for lookup in re.findall(r"\$\((python .*?\))'\)", commands[0]):
        assert Path(output("sh", "-c", f"{lookup}'").strip()).exists()
    build = commands[1].strip().replace("/opt/lensbox", str(installed)).replace("detector.pt", str(artifact))
    assert run("sh", "-ec", f"cd {tmp_path} && {build}").returncode == 0
    missing = run(tmp_path / "build" / "my_program", tmp_path / "none.pt")
    assert (missing.returncode, b"none.pt" in missing.stderr) == (3, True)


def test_the_lines_of_the_page_compile(installed: Path) -> None:
    """The rows that need no header of libtorch; a struct stands for OpenCV's."""
    rows = dict(re.findall(r"^\| (.*?) \| .*?`([^`]+)`.*\|$", PAGE, flags=re.MULTILINE))
    source = f"""
    #include <lensbox/detector.h>
    struct Mat {{ const uint8_t* data; int cols, rows; size_t step[1]; }};
    void use(lensbox::Detector& detector, const char* chars, const Mat& mat, const uint8_t* bytes,
             size_t size, const lensbox::Detection& detection, size_t i) {{
      const lensbox::ImageView frame{{{rows["a `char*` frame"]}, .width = 1, .height = 1, .stride = 1,
                                     .format = lensbox::PixelFormat::kGray8}};
      {rows["a `cv::Mat` of BGR"]};
      {rows["an MJPEG camera"]};
      {rows["other thresholds"]};
      (void){rows["the name of a label"]};
      (void){rows["extras"]};
    }}
    """
    compiler = os.environ.get("CXX", "c++")
    output(
        *(compiler, "-fsyntax-only", "-std=c++20", "-I", installed / "include", "-x", "c++", "-"),
        stdin=source.encode(),
    )


def test_tensors_go_in_and_out(examples: Path, artifact: Path) -> None:
    assert re.match(
        r"boxes \[2, \d+, 4\] on cpu, of which count \d+\n", output(examples / "canvas_tensors", artifact)
    )


def test_the_installed_program_finds_the_op_library(installed: Path, artifact: Path) -> None:
    report = json.loads(output(installed / "bin" / "lensbox_runner", "selftest", "--artifact", artifact))
    assert report["passed"]


def test_cmake_finds_both_halves_of_this_version_only(installed: Path, tmp_path: Path) -> None:
    def find(wanted: str) -> "subprocess.CompletedProcess[bytes]":
        (tmp_path / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.24)\nproject(wants_it LANGUAGES CXX)\n"
            f"find_package(Lensbox {wanted})\n"
        )
        return run("cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={installed}")

    assert find("REQUIRED COMPONENTS runtime torch").returncode == 0
    for version in ("0.0", "0.9", "7.0"):
        result = find(f"{version} REQUIRED")
        assert result.returncode != 0
        assert f'compatible with requested version "{version}"' in " ".join(result.stderr.decode().split())


def test_exports_only_the_interface(installed: Path) -> None:
    library = installed / "lib" / "liblensbox_runtime.so"
    shown = [
        line.split(maxsplit=2)[2]
        for line in output("nm", "--dynamic", "--demangle", "--defined-only", library).splitlines()
    ]
    assert "lensbox::device_of(lensbox::Detector const&)" in shown
    own = re.compile(r"((typeinfo|typeinfo name|vtable) for )?lensbox::")
    assert [symbol for symbol in shown if not own.match(symbol)] == []


def test_builds_as_a_subdirectory_of_a_project(tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.24)\nproject(contains_it LANGUAGES CXX)\n"
        f"add_subdirectory({REPOSITORY / 'cpp_runtime'} lensbox)\n"
        "add_executable(simple simple.cpp)\ntarget_link_libraries(simple PRIVATE lensbox::runtime)\n"
        "add_executable(tensors simple.cpp)\ntarget_link_libraries(tensors PRIVATE lensbox::torch)\n"
    )
    (tmp_path / "simple.cpp").write_text(
        "#include <lensbox/detector.h>\n#include <lensbox/version.h>\n"
        "int main() { return lensbox::onnxruntime_version() == LENSBOX_VERSION; }\n"
    )
    build = tmp_path / "build"
    prefix = f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}"
    output("cmake", "-S", tmp_path, "-B", build, "-G", "Ninja", prefix)
    # The library itself would take minutes.
    output("cmake", "--build", build, "--target", "CMakeFiles/simple.dir/simple.cpp.o")
    targets = output("cmake", "--build", build, "--target", "help")
    assert "liblensbox_runtime.so" in targets
    assert "lensbox_runner" not in targets


def test_the_simple_half_includes_no_other_library() -> None:
    own = {f"lensbox/{header.name}" for header in HEADERS.glob("*.h")} | {"lensbox/version.h"}
    for header in HEADERS.glob("*.h"):
        for included in re.findall(r"#include <(.+)>", header.read_text(encoding="utf-8")):
            assert included in own or "/" not in included, f"{header.name} includes {included}"
