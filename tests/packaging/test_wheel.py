"""Build the wheel and use it in an environment without access to this checkout."""

import json
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from programs import REPOSITORY, path_with_build_tools, run

pytest.importorskip("scikit_build_core", reason="the wheel's build backend is not installed")

_PROGRAM = """
import sys
import torch
import lensbox.ops
from lensbox.runtime import load_artifact

boxes = torch.tensor([[0.0, 0.0, 2.0, 2.0]])
assert abs(float(lensbox.ops.giou(boxes, boxes)) - 1) < 1e-6
artifact = load_artifact(sys.argv[1])
assert artifact.self_test().passed
print(lensbox.ops.library_path())
print(load_artifact.__code__.co_filename)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    # Below build/, where an earlier build has left its object files: compiling anew takes minutes.
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    run(*command, "--wheel-dir", folder, REPOSITORY, timeout=900)
    (path,) = folder.glob("lensbox-*.whl")
    return path


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment with the wheel, and with torch and the other packages of this one.

    Those are found through a path file. The path files among them, such as an editable install's, are not
    read, so that lensbox can come from the wheel alone.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    site = Path(sysconfig.get_path("purelib", "posix_prefix", vars={"base": str(folder)}))
    install = (sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install")
    run(*install, "--no-deps", "--no-index", wheel)
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


def _run(*command: object, **options: Any) -> str:
    """Run a program without the variables of this process, which may name the checkout."""
    return run("env", "-i", *command, **options).stdout


_SOURCES = (".cpp", ".cu", ".cuh", ".h", ".h.in", ".cmake", ".cmake.in", "CMakeLists.txt")


def test_wheel_holds_all_folders_and_sources(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    folders = {name.split("/")[1] for name in names if name.startswith("lensbox/")}
    # Training and the project's own benchmarks are in the repository alone.
    of_the_repository = {"bench", "train"}
    assert folders == {path.name for path in (REPOSITORY / "src" / "lensbox").iterdir()} - of_the_repository
    assert all(f"lensbox/{folder}/py.typed" in names for folder in folders)
    page = {f"lensbox/{path.relative_to(REPOSITORY)}" for path in (REPOSITORY / "serve" / "page").iterdir()}
    assert {"lensbox/serve/page/index.html", "lensbox/serve/page/script.js"} <= page <= set(names)
    sources = {Path(name) for name in names if name.endswith(_SOURCES)}
    # Users compile the C++ runtime.
    of_the_runtime = {
        Path("lensbox") / path.relative_to(REPOSITORY)
        for path in (REPOSITORY / "cpp_runtime").rglob("*")
        if path.name.endswith(_SOURCES) and "tests" not in path.parts
    }
    headers = {"box_math.h", "detection_sets.h", "fit.h", "fit_math.h", "fit_words.h", "host_device.h"}
    headers |= {"jpeg_color.h", "jpeg_data.h", "onnx_model.h", "problems.h", "tiles.h"}
    kernels = {f"cpu/{path.name}" for path in (REPOSITORY / "ops" / "csrc" / "cpu").iterdir()}
    modules = ("FindTorch.cmake", "LensboxOpsConfig.cmake")
    of_the_ops = {Path("lensbox/ops/csrc") / name for name in headers | kernels}
    of_the_ops |= {Path("lensbox/ops/cmake") / name for name in modules}
    assert sources == of_the_runtime | of_the_ops
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"lensbox"}


@pytest.mark.exhaustive
def test_installed_wheel_runs_ops_and_artifacts(
    environment: Path, artifact_path: Path, tmp_path: Path
) -> None:
    assert _run(environment / "lensbox", "--version", cwd=tmp_path).startswith("lensbox ")
    ended = run("env", "-i", environment / "lensbox", "train", code=3)
    assert "is in the repository, not in the package" in ended.stderr
    Image.new("L", (64, 64)).save(tmp_path / "a.png")
    row = {"image_id": 1, "category_id": 1, "bbox": [9, 9, 30, 30]}
    labels = {"images": [{"id": 1, "file_name": "a.png"}], "categories": [{"id": 1}], "annotations": [row]}
    (tmp_path / "labels.json").write_text(json.dumps(labels))
    words = ("evaluate", "--data", "labels.json", "--device", "cpu", "--plots", ".")
    printed = _run(environment / "lensbox", *words, "--artifact", artifact_path, cwd=tmp_path)
    assert printed.startswith("average precision at IoU 0.5, 1 images, 1 boxes")
    assert (tmp_path / "mistakes.png").is_file()
    output = _run(environment / "python", "-c", _PROGRAM, artifact_path, cwd=tmp_path)
    for path in output.split():
        assert Path(path).is_relative_to(environment.parent)


@pytest.mark.exhaustive
def test_cpp_runtime_compiles_from_the_wheel(wheel: Path, environment: Path, tmp_path: Path) -> None:
    python = environment / "python"
    source = _run(python, "-m", "lensbox.cpp_runtime", "--source-dir", cwd=tmp_path).strip()
    assert Path(source).is_relative_to(environment.parent)
    build = tmp_path / "build"
    tools = f"PATH={path_with_build_tools()}"
    torch_path = f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}"
    options = ("-G", "Ninja", "-DCMAKE_BUILD_TYPE=None", "-DCMAKE_UNITY_BUILD=OFF", torch_path)
    _run(tools, "cmake", "-S", source, "-B", build, *options, cwd=tmp_path)
    version = wheel.name.split("-")[1]
    assert f'"{version}"' in (build / "include" / "lensbox" / "version.h").read_text()
    # All would take minutes. This file includes a header of the op library.
    target = "CMakeFiles/lensbox_runtime.dir/core/images/jpeg_decoder.cpp.o"
    _run(tools, "cmake", "--build", build, "--target", target, cwd=tmp_path)
