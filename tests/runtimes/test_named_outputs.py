"""Labels, extras and tiles: Python and the C++ runner give the same answers, to the bit.

Classes on a wide canvas in colour, key points and numbers on a gray one; `tests/examples/test_custom_op.py`
does the same for an op of its own.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import PIL.Image
import pytest
from damaged_files import Values, put, rewritten, with_metadata
from runner_answers import answer, run
from small_detectors import Landmarks, RedAndBlue
from torch import nn

from lensbox.cli.samples import save_photos
from lensbox.export import save_artifact
from lensbox.runtime import TileSpec, load_artifact
from lensbox.runtime.detect.detection import detections_of_json
from lensbox.runtime.detect.self_test import Difference
from lensbox.runtime.file.self_test import Tolerance

Name = Literal["classes", "points"]
Export = Callable[..., Path]
DETECTORS: dict[Name, Callable[[], nn.Module]] = {"classes": RedAndBlue, "points": Landmarks}
# Low, so that there is much to compare, and apart from all scores of the photographs.
THRESHOLDS = {"classes": (0.3123, 0.3), "points": (0.2345, 0.5)}
LANDMARKS = 12  # as many as Landmarks gives at most


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Export:
    """Return a function that exports a detector, once for each format."""
    folder = tmp_path_factory.mktemp("artifacts")

    def exported(name: Name, suffix: str = ".pt") -> Path:
        path = folder / f"{name}{suffix}"
        if not path.exists():
            kind = {".pt": "torchscript", ".pt2": "program", ".onnx": "onnx"}[suffix]
            save_artifact(DETECTORS[name](), path, kind=kind)  # type: ignore[arg-type]  # (checked by save_artifact)
        return path

    return exported


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Photographs, a picture of red and blue squares, and one where nothing is found."""
    folder = tmp_path_factory.mktemp("photos")
    save_photos(folder)
    squares = np.full((240, 500, 3), 110, np.uint8)
    squares[40:70, 30:60] = (250, 10, 10)
    squares[150:190, 400:440] = (10, 10, 240)
    PIL.Image.fromarray(squares).save(folder / "squares.png")
    PIL.Image.new("RGB", (50, 90)).save(folder / "dark.png")
    return sorted(folder.iterdir())


def detect(path: Path, photos: list[Path], name: Name, *options: str) -> list[list[Values]]:
    score, iou = THRESHOLDS[name]
    thresholds = ("--score-threshold", score, "--iou-threshold", iou)
    found = answer("detect", "--artifact", path, *thresholds, *options, "--image", *photos)
    return [image["detections"] for image in found["images"]]


def in_float32(value: Any) -> Any:
    """Return detections with all numbers as float32, as the runner prints them in their shortest form."""
    if isinstance(value, dict):
        return {key: in_float32(one) for key, one in value.items()}
    if isinstance(value, list):
        return [in_float32(one) for one in value]
    return value if isinstance(value, str) else float(np.float32(value))


@pytest.mark.parametrize("name", DETECTORS)
@pytest.mark.parametrize("options", [(), ("--batch", "3", "--decode-threads", "4")])
@pytest.mark.parametrize("suffix", [".pt", pytest.param(".onnx", marks=pytest.mark.onnx_runner)])
def test_python_and_cpp_find_the_same(
    name: Name, options: tuple[str, ...], suffix: str, export: Export, photos: list[Path]
) -> None:
    path = export(name, suffix)
    artifact = load_artifact(path)
    read = [artifact.read_photo(photo) for photo in photos]
    if options:  # the same batch, as convolutions of another sum in another order
        found = artifact.detect_images(read[:3], *THRESHOLDS[name])
        found += artifact.detect_images(read[3:], *THRESHOLDS[name])
    else:
        found = [artifact.detect_image(photo, *THRESHOLDS[name]) for photo in read]
    expected = [image.to_json(artifact.classes)["detections"] for image in found]
    assert [len(image) == 0 for image in expected] == [photo.stem == "dark" for photo in photos]
    assert in_float32(detect(path, photos, name, *options)) == in_float32(expected)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a photograph of many small squares."""
    generator = np.random.default_rng(0)
    picture = PIL.Image.new("RGB", (1501, 803), (114, 114, 114))
    for index in range(60):
        x, y = (int(value) for value in generator.integers(0, (1490, 790)))
        picture.paste([(255, 0, 0), (0, 0, 255)][index % 2], (x, y, x + 24, y + 24))
    path = tmp_path_factory.mktemp("tiles") / "large.jpg"
    picture.save(path, quality=92)
    return path


@pytest.mark.parametrize(
    ("text", "tiles", "suffix"),
    [
        ("auto", TileSpec(), ".pt2"),
        ("333,0.4", TileSpec(333, 0.4), ".pt"),
        pytest.param("auto", TileSpec(), ".pt", marks=pytest.mark.exhaustive),
        pytest.param("333,0.4", TileSpec(333, 0.4), ".pt2", marks=pytest.mark.exhaustive),
    ],
)
def test_python_and_cpp_find_the_same_in_tiles(
    text: str, tiles: TileSpec, suffix: str, export: Export, large: Path
) -> None:
    path = export("classes", suffix)
    artifact = load_artifact(path)
    python = artifact.detect_image(large, *THRESHOLDS["classes"], tiles)
    assert len(python.boxes) > 40
    (cpp,) = detect(path, [large], "classes", "--tiles", text)
    assert in_float32(cpp) == in_float32(python.to_json(artifact.classes)["detections"])


def test_the_largest_and_too_small_tiles(export: Export, large: Path) -> None:
    assert detect(export("classes"), [large], "classes", "--tiles", str(2**63 - 1)) is not None
    refused = run("detect", "--artifact", export("classes"), "--image", large, "--tiles", "2", code=4)
    (image,) = json.loads(refused.stdout)["images"]
    assert "tiles must be at most 4096, got more of size 2" in image["error"]


@pytest.mark.gpu
@pytest.mark.parametrize("name", DETECTORS)
@pytest.mark.parametrize("options", [(), ("--batch", "3"), ("--batch", "4", "--capture")])
def test_a_gpu_finds_the_same(
    name: Name, options: tuple[str, ...], export: Export, photos: list[Path]
) -> None:
    path = export(name)
    artifact, difference = load_artifact(path), Difference()
    tolerance = Tolerance(0.1, 2e-3, 0, dict.fromkeys(artifact.metadata.extras, 0.1), iou=0.02)
    answers = detect(path, photos, name, "--device", "cuda", *options)
    slots = LANDMARKS if name == "points" else None
    for photo, found in zip(photos, answers, strict=True):
        image = artifact.detect_image(artifact.read_photo(photo), *THRESHOLDS[name])
        other = detections_of_json({"detections": found}, artifact.classes)
        difference.add(image, other, THRESHOLDS[name], tolerance, photo.name, slots)
    assert difference.unexplained == []


def other_labels(values: Values) -> None:
    expected = values["self_test"]["expected"]
    expected["labels"] = [1 - label for label in expected["labels"]]


def other_cells(values: Values) -> None:
    for row in values["self_test"]["expected"]["extras"]["cell"]:
        row[0] += 2


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("classes", other_labels),
        ("points", other_cells),
        ("points", put("self_test.expected.extras.corners.0.1", 1e6)),
        ("points", put("self_test.expected.extras.embedding.0.3", -1e6)),
    ],
)
def test_both_fail_the_self_test_for_the_same_reason(
    name: Name, change: Callable[[Values], object], export: Export, tmp_path: Path
) -> None:
    path = tmp_path / "other.pt"
    path.write_bytes(rewritten(export(name).read_bytes(), with_metadata(change)))
    expected = load_artifact(path).self_test()
    report = answer("selftest", "--artifact", path, code=3)
    assert report["failures"] == expected.failures
    assert not report["passed"]
