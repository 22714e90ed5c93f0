"""Labels and extras: Python and the C++ runner give the same answers.

Classes on a wide canvas in colour, key points and numbers on a gray one; `tests/export/test_custom_op.py`
does the same for an op of its own.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import PIL.Image
import pytest
from altered_packages import PRECISION, Values, put, remove, with_metadata
from damaged_files import rewritten
from runner_answers import answer, run
from torch import nn
from user_detectors import Landmarks, RedAndBlue

from lensbox.common.errors import ArtifactError
from lensbox.common.samples import save_photos
from lensbox.export.pipeline import save_artifact
from lensbox.runtime.artifact import Artifact
from lensbox.runtime.detection import Detections
from lensbox.runtime.loading import load_artifact

Name = Literal["classes", "points"]
DETECTORS: dict[Name, Callable[[], nn.Module]] = {"classes": RedAndBlue, "points": Landmarks}
# Low, so that there is much to compare, and apart from all scores of the photographs.
THRESHOLDS = {"classes": (0.3123, 0.3), "points": (0.2345, 0.5)}
LANDMARKS = 12  # as many as Landmarks gives at most


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("artifacts")
    for name, make in DETECTORS.items():
        save_artifact(make(), folder / f"{name}.pt")  # type: ignore[arg-type]  # (checked by save_artifact)
        save_artifact(make(), folder / f"{name}.onnx", kind="onnx")  # type: ignore[arg-type]
    return {name: folder / f"{name}.pt" for name in DETECTORS}


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


def as_json(found: Detections, artifact: Artifact) -> list[Values]:
    """Python's answer in the form of the runner's."""
    detections: list[Values] = []
    for index in range(len(found.scores)):
        entry: Values = {"box": found.boxes[index].tolist(), "score": found.scores[index].item()}
        if found.labels is not None:
            entry["label"] = artifact.classes[found.labels[index]]
        if found.extras:
            entry["extras"] = {name: values[index].tolist() for name, values in found.extras.items()}
        detections.append(entry)
    return detections


def numbers(value: Any) -> np.ndarray[Any, Any]:
    return np.array(value, np.float64)


def assert_equal(found: list[Values], expected: list[Values]) -> None:
    """Assert that detections are equal as float32; the runner prints numbers in their shortest form."""
    assert [list(detection) for detection in found] == [list(detection) for detection in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.get("label") == other.get("label")
        pairs = [(one["box"], other["box"]), (one["score"], other["score"])]
        assert list(one.get("extras", {})) == list(other.get("extras", {}))
        pairs += [(one["extras"][name], value) for name, value in other.get("extras", {}).items()]
        for left, right in pairs:
            assert numbers(left).shape == numbers(right).shape
            assert (numbers(left).astype(np.float32) == numbers(right).astype(np.float32)).all()


@pytest.mark.parametrize("name", DETECTORS)
@pytest.mark.parametrize("options", [(), ("--batch", "3", "--decode-threads", "4")])
@pytest.mark.parametrize("suffix", [".pt", pytest.param(".onnx", marks=pytest.mark.onnx_runner)])
def test_python_and_cpp_find_the_same(
    name: Name, options: tuple[str, ...], suffix: str, paths: dict[str, Path], photos: list[Path]
) -> None:
    path = paths[name].with_suffix(suffix)
    artifact = load_artifact(path)
    read = [artifact.read_photo(photo) for photo in photos]
    if options:  # the same batch, as convolutions of another sum in another order
        found = artifact.detect_images(read[:3], *THRESHOLDS[name])
        found += artifact.detect_images(read[3:], *THRESHOLDS[name])
    else:
        found = [artifact.detect_image(photo, *THRESHOLDS[name]) for photo in read]
    expected = [as_json(image, artifact) for image in found]
    assert [len(image) == 0 for image in expected] == [photo.stem == "dark" for photo in photos]
    for image, other in zip(detect(path, photos, name, *options), expected, strict=True):
        assert_equal(image, other)


@pytest.mark.gpu
@pytest.mark.parametrize("name", DETECTORS)
@pytest.mark.parametrize("options", [(), ("--batch", "3"), ("--batch", "4", "--capture")])
def test_a_gpu_finds_the_same(
    name: Name, options: tuple[str, ...], paths: dict[str, Path], photos: list[Path]
) -> None:
    artifact = load_artifact(paths[name])
    answers = detect(paths[name], photos, name, "--device", "cuda", *options)
    for photo, found in zip(photos, answers, strict=True):
        expected = as_json(artifact.detect_image(artifact.read_photo(photo), *THRESHOLDS[name]), artifact)
        lowest = THRESHOLDS[name][0]
        if name == "points" and len(expected) == LANDMARKS:
            # The list is full: the last bit of a mean decides which of equal ones come in.
            lowest = expected[-1]["score"]
            assert len(found) == LANDMARKS
        for one, other in ((found, expected), (expected, found)):
            assert_has_all(one, other, lowest + 2e-3)


def assert_has_all(found: list[Values], expected: list[Values], clear: float) -> None:
    """Assert that each expected detection with a score of at least `clear` is found, in any order."""
    for wanted in expected:
        if wanted["score"] < clear:
            continue
        near = [one for one in found if np.abs(numbers(one["box"]) - numbers(wanted["box"])).max() < 0.1]
        near = [one for one in near if one.get("label") == wanted.get("label")]
        assert near, wanted
        assert near[0]["score"] == pytest.approx(wanted["score"], abs=2e-3)
        for name, value in wanted.get("extras", {}).items():
            np.testing.assert_allclose(numbers(near[0]["extras"][name]), numbers(value), atol=0.1)


def edited(path: Path, target: Path, change: Callable[[Values], object]) -> Path:
    target.write_bytes(rewritten(path.read_bytes(), with_metadata(change)))
    return target


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
    name: Name, change: Callable[[Values], object], paths: dict[str, Path], tmp_path: Path
) -> None:
    path = edited(paths[name], tmp_path / "other.pt", change)
    expected = load_artifact(path).self_test()
    done = run("selftest", "--artifact", path)
    assert done.returncode == 3
    report = json.loads(done.stdout)
    assert report["failures"] == expected.failures
    assert not report["passed"]


def extra(shape: list[int], kind: str = "values") -> Callable[[Values], None]:
    return put("extras.embedding", {"shape": shape, "kind": kind})


# Each change of lensbox.json that both refuse, and the value that both name.
REFUSED: list[tuple[Name, Callable[[Values], object], str]] = [
    ("classes", put("classes", "red"), "classes"),
    ("classes", put("classes", ["red", ""]), "classes[1]"),
    ("classes", put("classes", ["red", 7]), "classes[1]"),
    ("classes", put("classes", ["red", "é" * 201]), "classes[1]"),
    ("classes", put("classes", ["red", "red"]), "classes"),
    ("classes", put("classes", [str(i) for i in range(10_001)]), "classes"),
    ("classes", put("classes", ["red"]), "self_test.expected.labels"),
    ("classes", remove("self_test.expected.labels"), "self_test.expected.labels"),
    ("classes", put("self_test.expected.labels", []), "self_test.expected.labels"),
    ("classes", put("self_test.expected.labels.0", 2), "self_test.expected.labels"),
    ("classes", put("self_test.expected.labels.0", -1), "self_test.expected.labels[0]"),
    ("classes", put("self_test.expected.labels.0", 1.0), "self_test.expected.labels[0]"),
    ("classes", put("self_test.expected.labels.0", True), "self_test.expected.labels[0]"),
    ("points", put("extras", []), "extras"),
    ("points", put("extras", {f"x{i}": 0 for i in range(101)}), "extras"),
    ("points", put("extras.labels", {"shape": [], "kind": "values"}), "labels"),
    ("points", put("extras.a b", {"shape": [], "kind": "values"}), "extras.a b"),
    ("points", put("extras.é", {"shape": [], "kind": "values"}), "extras.é"),
    ("points", put("extras.embedding", 4), "extras.embedding"),
    ("points", remove("extras.embedding.kind"), "extras.embedding.kind"),
    ("points", extra([4], "point"), "extras.embedding.kind"),
    ("points", extra([4], "points"), "extras.embedding."),
    ("points", extra([], "points"), "extras.embedding."),
    ("points", extra([0]), "extras.embedding.shape[0]"),
    ("points", extra([65_537]), "extras.embedding.shape[0]"),
    ("points", extra([65_536] * 8), "extras.embedding.shape"),
    ("points", extra([1] * 9), "extras.embedding.shape"),
    ("points", extra([5]), "self_test.expected.extras.embedding[0]"),
    ("points", remove("self_test.expected.extras.cell"), "self_test.expected.extras.cell"),
    ("points", put("self_test.expected.extras.cell", []), "self_test.expected.extras.cell"),
    ("points", put("self_test.expected.extras.cell.0", []), "self_test.expected.extras.cell[0]"),
    ("points", put("self_test.expected.extras.cell.0.0", 1e39), "self_test.expected.extras.cell[0][0]"),
    ("points", put("self_test.expected.extras.cell.0.0", None), "self_test.expected.extras.cell[0][0]"),
    ("points", remove("self_test.tolerance.cuda.extras"), "self_test.tolerance.cuda.extras"),
    ("points", put("self_test.tolerance.cpu.extras.cell", -1), "self_test.tolerance.cpu.extras.cell"),
    ("points", put("precision", {**PRECISION, "dtype": "int8"}), "precision.dtype"),
]


@pytest.mark.parametrize(("name", "change", "place"), REFUSED)
def test_both_refuse_metadata_that_break_a_rule(
    name: Name, change: Callable[[Values], object], place: str, paths: dict[str, Path], tmp_path: Path
) -> None:
    path = edited(paths[name], tmp_path / "damaged.pt", change)
    with pytest.raises(ArtifactError) as error:
        load_artifact(path)
    done = run("info", "--artifact", path)
    assert (done.returncode, done.stdout) == (3, "")
    assert place in str(error.value)
    assert place in done.stderr


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("classes", put("classes", ["red", "é" * 200])),
        ("classes", put("classes", ["red", "blue", *(str(i) for i in range(9_998))])),
        ("points", put("precision", PRECISION)),
        ("points", put("precision", {**PRECISION, "dtype": "tf32", "pictures": 0, "more": []})),
        ("points", put("self_test.tolerance.cpu.extras.more", 1.0)),
    ],
)
def test_both_read_what_the_rules_allow(
    name: Name, change: Callable[[Values], object], paths: dict[str, Path], tmp_path: Path
) -> None:
    path = edited(paths[name], tmp_path / "allowed.pt", change)
    load_artifact(path)
    assert answer("info", "--artifact", path)["name"]
