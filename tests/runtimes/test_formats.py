"""Programs, packages and ONNX files give the answers of the TorchScript file, in Python and C++.

Both refuse a package for another machine and a changed ONNX model; `program_test.cpp` has changed programs.
"""

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import onnx
import PIL.Image
import pytest
import torch
from damaged_files import compiled_for, rewritten, with_metadata, without
from programs import runner_onnxruntime
from runner_answers import LOW, answer, assert_same, numbers, refusal
from small_detectors import LosingItsOwnWay

from lensbox.common.errors import ArtifactError, DeviceError
from lensbox.export import save_artifact
from lensbox.export.verify.pictures import draw_faces
from lensbox.model import FaceDetector
from lensbox.ops import library_path
from lensbox.runtime import load_artifact
from lensbox.runtime.file.seal import sealed_onnx

needs_onnxruntime = pytest.mark.onnx_runner


def no_machine_code(entries: dict[str, bytes]) -> None:
    """Replace the libraries by a text, which the linker refuses."""
    entries.update({name: b"no machine code" for name in entries if name.endswith(".so")})


def _resealed(change: Callable[[onnx.ModelProto], object]) -> Callable[[bytes], bytes]:
    """Return the change of an ONNX file, with a valid seal."""

    def apply(data: bytes) -> bytes:
        model = onnx.load_model_from_string(data)
        kept = {entry.key: entry.value for entry in model.metadata_props if entry.key != "lensbox.sha256"}
        onnx.helper.set_model_props(model, kept)
        change(model)
        return sealed_onnx(model.SerializeToString())

    return apply


def _lower_canvas(model: onnx.ModelProto) -> None:
    (entry,) = (entry for entry in model.metadata_props if entry.key == "lensbox.json")
    document = json.loads(entry.value)
    document["canvas"]["height"] = 128
    entry.value = json.dumps(document)


def _without_an_output(model: onnx.ModelProto) -> None:
    del model.graph.output[2]


@pytest.mark.parametrize(
    ("kind", "change", "code", "python", "cpp"),
    [
        *(
            ("package_path", partial(rewritten, change=change), code, reason, reason)
            for change, code, reason in (
                (with_metadata(lambda found: found.pop("compiled")), 3, "compiled"),
                (compiled_for(torch_version="2.10.1"), 3, "compiled for torch 2.10.1"),
                (compiled_for(platform="linux-riscv64"), 3, "compiled for linux-riscv64"),
                (compiled_for(cpu_features=["fpu", "fpu9"]), 3, "fpu9"),
                (compiled_for(device="cuda", gpu_architecture="sm_90"), 2, "device must be cuda"),
                (without(".so"), 3, "cannot be loaded on cpu"),
                (no_machine_code, 3, "cannot be loaded on cpu"),
            )
        ),
        pytest.param(
            *("onnx_path", _resealed(_lower_canvas), 3),
            r"the input images must be uint8 \[any, 1, 128, 256\], got uint8 \[any, 1, 256, 256\]",
            "method detect failed:.*images.* Got: 128 Expected: 256",
            marks=needs_onnxruntime,
        ),
        pytest.param(
            *("onnx_path", _resealed(_without_an_output), 3),
            "the outputs boxes, scores, counts, got boxes, scores",
            "detect failed:.*counts",
            marks=needs_onnxruntime,
        ),
    ],
)
def test_both_refuse_changed_files_and_packages_for_another_machine(
    kind: str,
    change: Callable[[bytes], bytes],
    code: int,
    python: str,
    cpp: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    source: Path = request.getfixturevalue(kind)
    path = tmp_path / f"changed{source.suffix}"
    path.write_bytes(change(source.read_bytes()))
    with pytest.raises((ArtifactError, DeviceError), match=f"(?s){python}") as caught:
        load_artifact(path)
    message = refusal(code, "selftest", "--artifact", path)
    assert re.search(cpp, message, re.DOTALL), message
    assert path.name in str(caught.value)
    assert path.name in message


@needs_onnxruntime
def test_a_loss_of_the_detector_is_not_in_an_onnx_file(tmp_path: Path) -> None:
    path, boxes = tmp_path / "own.onnx", tmp_path / "boxes.json"
    save_artifact(LosingItsOwnWay(), path, kind="onnx")
    assert answer("selftest", "--artifact", path)["passed"] is True
    boxes.write_text("[[0, 0, 8, 8]]")
    message = refusal(3, "loss", "--artifact", path, "--predictions", boxes, "--targets", boxes)
    assert "has no method loss" in message


@needs_onnxruntime
def test_an_onnx_file_on_a_gpu(onnx_path: Path) -> None:
    message = refusal(2, "selftest", "--artifact", onnx_path, "--device", "cuda")
    if torch.cuda.is_available():
        assert "device must be cpu for an ONNX file, got cuda" in message


def test_onnxruntime_is_missing_or_another_library(
    onnx_path: Path, random_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that is built without onnxruntime says the same as one that does not find the library."""
    monkeypatch.setenv("LENSBOX_ONNXRUNTIME", str(tmp_path / "missing.so"))
    assert "an ONNX file, which needs onnxruntime" in refusal(3, "selftest", "--artifact", onnx_path)
    assert answer("info", "--artifact", onnx_path)
    assert answer("selftest", "--artifact", random_path)["passed"] is True
    if runner_onnxruntime() is not None:
        monkeypatch.setenv("LENSBOX_ONNXRUNTIME", str(library_path()))
        assert "undefined symbol: OrtGetApiBase" in refusal(3, "selftest", "--artifact", onnx_path)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return photographs of different sizes, one of them a large JPEG file decoded at a smaller scale."""
    folder = tmp_path_factory.mktemp("photos")
    paths = []
    for seed, factor in enumerate((3, 5, 40)):
        pixels = draw_faces(seed).repeat_interleave(factor, 1).repeat_interleave(factor, 2)
        paths.append(folder / f"{seed}.{'jpg' if factor == 40 else 'png'}")
        PIL.Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(paths[-1])
    return paths


@pytest.mark.parametrize(
    "kind", ["program_path", "package_path", pytest.param("onnx_path", marks=needs_onnxruntime)]
)
def test_finds_the_same(
    kind: str, artifact_path: Path, photos: list[Path], request: pytest.FixtureRequest
) -> None:
    path: Path = request.getfixturevalue(kind)
    arguments = ["--image", *photos, "--score-threshold", LOW, "--batch", 2]
    script, found = (
        answer("detect", "--artifact", file, *arguments)["images"] for file in (artifact_path, path)
    )
    assert_same(found, script)
    python = load_artifact(path)
    for photo, image in zip(photos, found, strict=True):
        expected = python.detect_image(python.read_photo(photo), LOW)
        torch.testing.assert_close(numbers(image, "box"), expected.boxes, rtol=1e-4, atol=0.01)
        torch.testing.assert_close(numbers(image, "score"), expected.scores, rtol=0, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.usefixtures("new_gpu_float32")
@pytest.mark.parametrize("dtype", ["float32", "tf32", "float16"])
@pytest.mark.parametrize("kind", ["program", "aoti"])
def test_on_a_gpu(detector: FaceDetector, tmp_path: Path, kind: str, dtype: str) -> None:
    """A program or package finds the same as its captured graphs, in Python and in C++."""
    path = tmp_path / "detector.pt2"
    save_artifact(detector, path, 0.25, 0.4, kind=kind, dtype=dtype, device="cuda")
    artifact = load_artifact(path, "cuda")
    assert artifact.self_test().passed
    canvases = torch.randint(0, 256, (5, 1, 256, 256), dtype=torch.uint8, device="cuda")
    plain = artifact.detect(canvases)
    artifact.capture([5])
    for name, value in artifact.detect(canvases).items():
        assert torch.equal(value, plain[name])
    for capture in ([], ["--capture"]):
        arguments = ["--batch-sizes", 5, "--seconds", 0.1, *capture]
        assert answer("bench", "--artifact", path, "--device", "cuda", *arguments)
    assert answer("selftest", "--artifact", path, "--device", "cuda")["passed"] is True
