"""The C++ runtime without libtorch (`make core`): the answers of libtorch's build, and what is installed."""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import programs
import pytest
import runner_answers
from picture_files import noise
from programs import REPOSITORY, path_with_build_tools
from runner_answers import LOW

from lensbox.ops.canvas import fit_to_canvases
from lensbox.runtime import Detections, load_artifact

CORE = Path(os.environ.get("LENSBOX_CORE_BUILD", REPOSITORY / "build" / "core"))
RUNNER = CORE / "lensbox_runner"
pytestmark = [
    pytest.mark.onnx_runner,
    pytest.mark.skipif(
        not RUNNER.is_file() and not os.environ.get("LENSBOX_REQUIRE_ONNX_RUNNER"),
        reason=f"{RUNNER} is missing: make core",
    ),
]


def core(*arguments: object, code: int = 0, **options: Any) -> programs.Ended:
    return programs.run(RUNNER, *arguments, code=code, **options)


def documents(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Photographs of several shapes, one of which JPEG reads at a reduced size and EXIF turns."""
    folder = tmp_path_factory.mktemp("photos")
    paths = []
    for mode, size in (("RGB", (90, 70)), ("L", (33, 200)), ("RGBA", (300, 41))):
        paths.append(folder / f"{mode}.png")
        noise(mode).resize(size).save(paths[-1])
    turned = noise("RGB").resize((1500, 1100))
    exif = turned.getexif()
    exif[0x0112] = 6
    paths.append(folder / "turned.jpg")
    turned.save(paths[-1], exif=exif)
    return paths


def test_finds_what_libtorch_and_python_find(onnx_path: Path, photos: list[Path]) -> None:
    words = ("detect", "--artifact", onnx_path, "--score-threshold", LOW, "--batch", 3, "--image", *photos)
    (ours,) = documents(core(*words).stdout)
    assert ours == runner_answers.answer(*words)
    detector = load_artifact(onnx_path)
    outcomes = detector.detect_files(photos, batch_size=3, score_threshold=LOW)
    for found, outcome in zip(ours["images"], outcomes, strict=True):
        assert isinstance(outcome, Detections)
        assert found["detections"]
        boxes = [detection["box"] for detection in found["detections"]]
        scores = [detection["score"] for detection in found["detections"]]
        np.testing.assert_allclose(boxes, np.asarray(outcome.boxes), rtol=0, atol=1e-4)
        np.testing.assert_allclose(scores, np.asarray(outcome.scores), rtol=0, atol=1e-5)


def test_canvases_are_pythons_to_the_bit(onnx_path: Path, photos: list[Path], tmp_path: Path) -> None:
    detector = load_artifact(onnx_path)
    canvas, reading = detector.metadata.canvas, detector.metadata.reading
    words = (reading.orientation, canvas.width, canvas.height, canvas.channels, reading.jpeg_oversampling)
    programs.run(CORE / "tests" / "read_files", tmp_path, *words, canvas.fit, *photos)
    for index, path in enumerate(photos):
        photo = detector.read_photo(path)
        sizes = (canvas.height, canvas.width, canvas.channels)
        expected, _ = fit_to_canvases([photo.pixels], None, *sizes, 0, canvas.fit)
        assert (tmp_path / f"{index}.canvas").read_bytes() == expected.numpy().tobytes()


def test_tiles_and_frames_are_those_of_libtorch(onnx_path: Path, photos: list[Path]) -> None:
    artifact = ("detect", "--artifact", onnx_path, "--score-threshold", LOW)
    tiles = (*artifact, "--tiles", "48,0.5", "--image", *photos)
    assert documents(core(*tiles).stdout) == [runner_answers.answer(*tiles)]
    frame = np.arange(64 * 48 * 4, dtype=np.uint8).tobytes()
    for name, size in {"gray8": 64 * 48, "rgb8": 3 * 64 * 48, "nv12": 64 * 72, "yuyv": 2 * 64 * 48}.items():
        raw: dict[str, Any] = {"text": False, "input": frame[:size]}
        words = (*artifact, "--raw", "64x48", name)
        ours = core(*words, **raw).stdout
        assert ours == runner_answers.run(*words, code=0, **raw).stdout
        assert json.loads(ours)["frame"] == 0


def test_the_self_test_passes_and_info_names_no_libtorch(onnx_path: Path) -> None:
    assert documents(core("selftest", "--artifact", onnx_path).stdout)[0]["passed"]
    (info,) = documents(core("info", "--artifact", onnx_path).stdout)
    assert info["runner"]["libtorch"] is None
    assert "without libtorch" in core("--version").stdout


def test_another_format_says_what_it_needs(random_path: Path, photos: list[Path]) -> None:
    assert documents(core("info", "--artifact", random_path).stdout)[0]["name"]
    for words in (("selftest",), ("detect", "--image", photos[0])):
        message = core(*words, "--artifact", random_path, code=3).stderr
        assert re.search(r"is a TorchScript file, which needs libtorch.* -DLENSBOX_TORCH=ON", message)
    assert "need a build with libtorch" in core("bench", "--artifact", random_path, code=2).stderr
    assert (
        "device cuda:0 is not available"
        in core("info", "--artifact", random_path, "--device", "cuda:0", code=2).stderr
    )


# --- what is installed ---


def installed(prefix: Path, *options: str) -> Path:
    words = ("cmake", "--install", CORE, "--prefix", prefix, *options)
    programs.run(*words, env={"PATH": path_with_build_tools()}, code=0)
    return prefix


@pytest.mark.parametrize("option", ["CMAKE_PREFIX_PATH", "ONNXRUNTIME_ROOT"])
def test_finds_onnxruntime_in_a_folder_of_pip(option: str, tmp_path: Path) -> None:
    """`pip install --target`, beside which lies no torch."""
    library = tmp_path / "packages/onnxruntime/capi/libonnxruntime.so.1.32.0"
    headers = tmp_path / "headers"
    for file in (library, headers / "include/onnxruntime_cxx_api.h"):
        file.parent.mkdir(parents=True)
        file.touch()
    folders = {"ONNXRUNTIME_ROOT": headers, option: tmp_path / "packages"}
    if option == "ONNXRUNTIME_ROOT":
        folders["LENSBOX_ONNXRUNTIME_INCLUDE_DIR"] = headers / "include"
    words = ["-DLENSBOX_TORCH=OFF", *(f"-D{name}={folder}" for name, folder in folders.items())]
    build = tmp_path / "build"
    where = ("-S", REPOSITORY / "cpp_runtime", "-B", build, "-G", "Ninja")
    programs.run("cmake", *where, *words, env={"PATH": path_with_build_tools()}, code=0)
    assert f"LENSBOX_ONNXRUNTIME_LIBRARY:FILEPATH={library}\n" in (build / "CMakeCache.txt").read_text()


def test_a_device_folder_is_small_and_runs_anywhere(onnx_path: Path, tmp_path: Path) -> None:
    device = installed(tmp_path / "built", "--component", "device", "--strip").rename(tmp_path / "moved")
    files = [path for path in device.rglob("*") if path.is_file() and not path.is_symlink()]
    assert sum(path.stat().st_size for path in files) <= 45_000_000
    assert not [path for path in files if str(REPOSITORY).encode() in path.read_bytes()]
    printed = programs.run(
        "env", "-i", device / "bin" / "lensbox_runner", "selftest", "--artifact", onnx_path
    )
    assert json.loads(printed.stdout)["passed"]


@pytest.mark.skipif(shutil.which("pkg-config") is None, reason="needs pkg-config")
def test_a_program_of_ones_own_runs_beside_the_device_library(
    onnx_path: Path, photos: list[Path], tmp_path: Path
) -> None:
    prefix = installed(tmp_path / "prefix")
    build = str(CORE).encode()
    assert not [path for path in prefix.rglob("*") if path.is_file() and build in path.read_bytes()]
    device = installed(tmp_path / "device", "--component", "device-library", "--strip")
    (device / "bin").mkdir()
    source = REPOSITORY / "examples" / "cpp" / "find_objects.cpp"
    flags = programs.run(
        "pkg-config", "--cflags", "--libs", "lensbox", env={"PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}
    ).stdout.split()
    program = device / "bin" / "find_objects"
    programs.run("g++", source, "-o", program, *flags, "-Wl,-rpath,$ORIGIN/../lib", code=0)
    shutil.rmtree(prefix)
    found = programs.run("env", "-i", program, onnx_path, photos[0], code=0)
    assert found.stdout
