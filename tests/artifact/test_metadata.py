"""`lensbox.json`, read strictly; errors name the path of a value.

`tests/runtimes/test_named_outputs.py` has the rules of classes, extras and precision.
"""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from altered_packages import PRECISION, Values, put

from lensbox.artifact.metadata import ArtifactMetadata, Canvas, Extra, Precision, Reading
from lensbox.runtime.loading import load_artifact


@pytest.fixture(scope="module")
def values(artifact_path: Path) -> Values:
    document: Values = json.loads(load_artifact(artifact_path).metadata.to_json())
    return document


def in_test(path: str, value: Any) -> Callable[[Values], None]:
    return put(f"self_test.{path}", value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("format_version", True), "it has no format_version"),
        (put("format_version", 1), "format version is 1, this Lensbox reads only 2"),
        (put("format_version", 2**32 + 1), "format version is 4294967297, this Lensbox reads only 2"),
        (put("name", 7), "name must be a valid string, got 7"),
        (put("input", []), r"input must be .*, got \[\]"),
        (put("canvas", None), "canvas must be .*, got null"),
        (put("canvas.height", 0), "canvas.height must be greater than or equal to 1, got 0"),
        (put("canvas.width", 16385), "canvas.width must be less than or equal to 16384, got 16385"),
        (put("canvas.width", 256.0), "canvas.width must be a valid integer, got 256.0"),
        (put("canvas.channels", 2), "canvas.channels must be 1 or 3, got 2"),
        (put("precision", {**PRECISION, "device": "cuda:0"}), "precision.device"),
        (put("precision", {**PRECISION, "pictures": 2**31}), "precision.pictures"),
        (put("precision", {**PRECISION, "max_box_change": -1}), "precision.max_box_change"),
        (put("canvas", {}), "it lacks the entry 'canvas.height'"),
        (put("reading.orientation", "auto"), "reading.orientation must be 'exif' or 'stored', got \"auto\""),
        (
            put("reading.jpeg_oversampling", True),
            "reading.jpeg_oversampling must be a valid integer, got true",
        ),
        (put("defaults.score_threshold", 1.5), "defaults.score_threshold must be less than or equal to 1"),
        (put("defaults.iou_threshold", "0.5"), "defaults.iou_threshold must be a valid number"),
        (put("ops", ["a::b() -> ()"] * 1001), "ops must have at most 1000 items"),
        (put("ops", ["giou"]), r"ops\[0\] must match pattern .*, got \"giou\""),
        (put("ops", ["a::b(" + "x" * 5000 + ") -> ()"]), r"ops\[0\] must have at most 4096 characters"),
        (put("methods", ["detect", "not a name"]), r"methods\[1\] must match pattern"),
        (in_test("image.shape", [3, 9]), r"it lacks the entry 'self_test.image.shape\[2\]'"),
        (in_test("image.shape.0", 2), r"self_test.image.shape\[0\] must be 1, 3 or 4, got 2"),
        (in_test("image.shape", [1, 2**20, 2**62]), r"self_test.image.pixels must have \d+ items, got \d+"),
        (in_test("image.pixels.5", 256), r"self_test.image.pixels\[5\] must be less than or equal to 255"),
        (in_test("image.pixels", [0]), r"self_test.image.pixels must have \d+ items, got 1"),
        (in_test("expected.boxes", []), "expected.boxes must have at least 1 item"),
        (in_test("expected.boxes.0.1", 1e39), r"boxes\[0\]\[1\] must be less than or equal to 34028"),
        (in_test("expected.scores.0", 1.01), r"scores\[0\] must be less than or equal to 1, got 1.01"),
        (in_test("loss.expected", None), "self_test.loss.expected must be a valid number, got null"),
        (
            in_test("tolerance.cuda.loss", -1),
            "tolerance.cuda.loss must be greater than or equal to 0, got -1",
        ),
        (
            lambda values: values["self_test"]["tolerance"].pop("cpu"),
            "lacks the entry 'self_test.tolerance.cpu'",
        ),
    ],
)
def test_names_malformed_values(values: Values, change: Callable[[Values], None], message: str) -> None:
    changed = copy.deepcopy(values)
    change(changed)
    with pytest.raises(ValueError, match=message):
        ArtifactMetadata.from_json(json.dumps(changed))


@pytest.mark.parametrize(
    "change",
    [
        put("unknown", {"any": ["thing", None]}),
        in_test("tolerance.tpu", "unknown"),
        put("ops", []),
        put("defaults.score_threshold", 1),
        put("canvas", {"height": 1, "width": 16384, "channels": 3, "fill": 255, "more": 1}),
        put("reading", {"orientation": "stored", "jpeg_oversampling": 0}),
        put("classes", []),
        put("extras", {}),
    ],
)
def test_reads_allowed_values(values: Values, change: Callable[[Values], None]) -> None:
    changed = copy.deepcopy(values)
    change(changed)
    ArtifactMetadata.from_json(json.dumps(changed))


def test_keeps_values(values: Values) -> None:
    changed = copy.deepcopy(values)
    changed["canvas"] = {"height": 192, "width": 320, "channels": 3, "fill": 114}
    changed["reading"] = {"orientation": "stored", "jpeg_oversampling": 3}
    changed["precision"] = PRECISION
    count = len(changed["self_test"]["expected"]["scores"])
    for path, value in {
        "classes": ["cat", "dog"],
        "self_test.expected.labels": [1] + [0] * (count - 1),
        "extras": {"tail": {"shape": [1, 2], "kind": "points"}},
        "self_test.expected.extras": {"tail": [[1, 2.5]] * count},
        "self_test.tolerance.cpu.extras": {"tail": 0.1},
        "self_test.tolerance.cuda.extras": {"tail": 0.5},
    }.items():
        put(path, value)(changed)
    metadata = ArtifactMetadata.from_json(json.dumps(changed))
    assert metadata.canvas == Canvas(192, 320, 3, 114)
    assert metadata.reading == Reading("stored", 3)
    assert metadata.precision == Precision("float16", "cuda", 12, 30, 0.01, 1.5, 0.004)
    assert metadata.classes == ("cat", "dog")
    assert metadata.extras == {"tail": Extra((1, 2), "points")}
    assert metadata.self_test.labels is not None
    assert metadata.self_test.labels[:2].tolist() == [1, 0]
    tail = metadata.self_test.extras["tail"]
    assert tail.values[0].tolist() == [[1, 2.5]]
    assert tail.tolerances == {"cpu": 0.1, "cuda": 0.5}
    written = json.loads(metadata.to_json())
    assert {key: written[key] for key in ("canvas", "reading", "precision")} == {
        key: changed[key] for key in ("canvas", "reading", "precision")
    }
    assert ArtifactMetadata.from_json(metadata.to_json()).to_json() == metadata.to_json()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "a": 2}', "'a' occurs twice"),
        ('{"b": [{"a": 1, "a": 1}]}', "'a' occurs twice"),
        ("[NaN]", "NaN is no number of JSON"),
        ("[-Infinity]", "-Infinity is no number of JSON"),
        ("\ufeff{}", "BOM"),
        ("[" * 200_000, "nested too deeply"),
        ("", "Expecting value"),
        ("[]", "it has no format_version"),
        (" " * ((16 << 20) + 1), "at most 16777216 are read"),
    ],
)
def test_rejects_lenient_json(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ArtifactMetadata.from_json(text)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"score_threshold": 0.25', '"score_threshold": 1e999', "must be a finite number"),
        ('"input": {', '"input": {"a": ' + "[" * 500 + "]" * 500 + ", ", "recursion limit|nested too deeply"),
        ('"name": "', r'"name": "\ud800', "Invalid JSON"),
    ],
)
def test_rejects_json_that_only_one_parser_reads(values: Values, old: str, new: str, message: str) -> None:
    text = json.dumps(values)
    assert old in text
    with pytest.raises(ValueError, match=message):
        ArtifactMetadata.from_json(text.replace(old, new, 1))
