"""`lensbox.json`, read strictly; what is wrong is named by its path."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lensbox.runtime.artifact_loading import load_artifact
from lensbox.runtime.detection import Extra
from lensbox.runtime.metadata import ArtifactMetadata, Canvas, Parity, Precision, Reading
from lensbox.runtime.strict_json import parse_strict

Values = dict[str, Any]
LIBRARY = {"name": "ops.so", "sha256": "0" * 64, "torch_version": "2.13.0", "platform": "linux-x86_64"}
PRECISION = {
    "dtype": "float16",
    "device": "cuda",
    "pictures": 12,
    "detections": 30,
    "median_box_change": 0.01,
    "max_box_change": 1.5,
    "max_score_change": 0.004,
}
PARITY = {
    "runtime": "Python",
    "device": "cpu",
    "batch": 7,
    "detections": 30,
    "boxes": 0.01,
    "scores": 0.001,
    "exchanged": 1,
    "loss": 1e-6,
    "milliseconds": 12.5,
}


@pytest.fixture(scope="module")
def values(artifact_path: Path) -> Values:
    document: Values = json.loads(load_artifact(artifact_path).metadata.to_json())
    return document


def put(path: str, value: Any) -> Callable[[Values], None]:
    """Sets the value at a path such as 'self_test.image.shape.0'."""

    def change(values: Any) -> None:
        *parents, last = path.split(".")
        for key in parents:
            values = values[int(key) if isinstance(values, list) else key]
        values[int(last) if isinstance(values, list) else last] = value

    return change


def in_test(path: str, value: Any) -> Callable[[Values], None]:
    return put(f"self_test.{path}", value)


def with_classes(labels: list[Any]) -> Callable[[Values], None]:
    """Two classes; `labels` replaces as many of the expected ones, which are 0."""

    def change(values: Any) -> None:
        values["classes"] = ["cat", "dog"]
        expected = values["self_test"]["expected"]
        count = len(expected["scores"])
        expected["labels"] = labels + [0] * (count - len(labels)) if len(labels) < 20 else labels

    return change


def with_extra(extra: Values, limits: Values | None = None) -> Callable[[Values], None]:
    """A further output "tail" of this kind, for which two numbers a detection are expected."""

    def change(values: Any) -> None:
        values["extras"] = {"tail": extra}
        test = values["self_test"]
        test["expected"]["extras"] = {"tail": [[1, 2.5]] * len(test["expected"]["scores"])}
        for device, limit in (limits or {"cpu": 0.1, "cuda": 0.5}).items():
            test["tolerance"][device]["extras"] = {"tail": limit}

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("format_version", True), "format_version must be a positive integer, got true"),
        (put("format_version", 1.0), "format_version must be a positive integer, got 1.0"),
        (put("format_version", 1e300), "format_version must be a positive integer, got 1e"),
        (put("format_version", 0), "format_version must be a positive integer, got 0"),
        (put("format_version", "1"), 'format_version must be a positive integer, got "1"'),
        (put("format_version", 2**32 + 1), "format version is 4294967297, this Lensbox reads up to 2"),
        (put("name", 7), "name must be a string, got 7"),
        (put("torch_version", None), "torch_version must be a string, got null"),
        (put("input", []), r"input must be an object, got \[\]"),
        (put("canvas", None), "canvas must be an object, got null"),
        (put("canvas.height", 0), "canvas.height must be an integer from 1 to 16384, got 0"),
        (put("canvas.width", 16385), "canvas.width must be an integer from 1 to 16384, got 16385"),
        (put("canvas.width", 256.0), "canvas.width must be an integer from 1 to 16384, got 256.0"),
        (put("canvas.channels", 2), "canvas.channels must be 1 or 3, got 2"),
        (put("canvas.fill", 256), "canvas.fill must be an integer from 0 to 255, got 256"),
        (put("reading", {}), "it lacks the entry 'reading.orientation'"),
        (put("reading.orientation", "auto"), 'reading.orientation must be "exif" or "stored", got "auto"'),
        (put("reading.orientation", 1), "reading.orientation must be a string, got 1"),
        (put("reading.jpeg_oversampling", -1), "jpeg_oversampling must be an integer from 0 to 1000, got -1"),
        (put("reading.jpeg_oversampling", True), "jpeg_oversampling must be an integer from 0 to 1000, got"),
        (
            put("defaults.score_threshold", 1.5),
            "defaults.score_threshold must be a number between 0 and 1",
        ),
        (put("defaults.iou_threshold", True), "defaults.iou_threshold must be a number between 0 and 1, got"),
        (put("defaults.iou_threshold", "0.5"), "defaults.iou_threshold must be a number"),
        (put("ops", "lensbox::op() -> ()"), "ops must be a list of at most 1000 operator schemas, got"),
        (put("ops", ["a::b() -> ()"] * 1001), "ops must be a list of at most 1000 .*, got 1001 of them"),
        (put("ops", ["giou"]), r"ops\[0\] must be an operator's schema, namespace::name.*, got \"giou\""),
        (put("ops", ["a::b(" + "(" * 16 + ")" * 16 + ") -> ()"]), r"ops\[0\] must be .* 16 nested brackets"),
        (put("ops", ["a::b(" + "(" * 100_000]), r"ops\[0\] must be an operator's schema"),
        (put("ops", ["a::b(" + "x" * 5000 + ") -> ()"]), r"ops\[0\] must be .* at most 4096 characters"),
        (put("methods", ["detect", "not a name"]), r"methods\[1\] must be an identifier"),
        (in_test("image.shape", [3, 9]), "image.shape must be a list of 3 sizes, got 2 of them"),
        (
            in_test("image.shape.1", -3),
            r"self_test.image.shape\[1\] must be a positive integer, got -3",
        ),
        (in_test("image.shape.0", 2), r"image.shape must be \[C, H, W\] with C = 1, 3 or 4, got \[2, "),
        (in_test("image.shape", [1, 2**20, 2]), "image.shape must be that of an image of at most"),
        (in_test("image.shape", [1, 2**20, 2**62]), "must be a positive integer|at most"),
        (
            in_test("image.pixels.5", 256),
            r"image.pixels\[5\] must be an integer from 0 to 255, got 256",
        ),
        (
            in_test("image.pixels.5", 1.0),
            r"image.pixels\[5\] must be an integer from 0 to 255, got 1.0",
        ),
        (in_test("image.pixels", [0]), r"image.pixels must be a list of \d+ values, .* got 1 of them"),
        (
            in_test("expected", {"boxes": [], "scores": []}),
            "scores must be a list of at least 1 scores",
        ),
        (
            in_test("expected.boxes", []),
            r"expected.boxes must be a list of \d+ boxes, .*, got 0 of them",
        ),
        (
            in_test("expected.boxes.0", [1, 2, 3]),
            r"expected.boxes\[0\] must be a list of 4 coordinates",
        ),
        (
            in_test("expected.boxes.0.1", 1e39),
            r"boxes\[0\]\[1\] must be a finite float32 number, got 1e",
        ),
        (
            in_test("expected.boxes.0.1", 10**300),
            r"boxes\[0\]\[1\] must be a finite float32 number, got",
        ),
        (in_test("expected.scores.0", 1.01), r"scores\[0\] must be a number between 0 and 1"),
        (
            in_test("loss", {"predictions": [], "targets": [], "expected": 0}),
            "list of at least 1 boxes",
        ),
        (in_test("loss.predictions", []), r"loss.predictions must be a list of \d boxes"),
        (in_test("loss.expected", None), "loss.expected must be a finite float32 number, got null"),
        (
            in_test("tolerance.cuda.loss", -1),
            "tolerance.cuda.loss must be a finite float32 number of at",
        ),
        (put("classes", "face"), r'classes must be a list of at most 10000 names, got "face"'),
        (put("classes", ["a", ""]), r'classes\[1\] must be a name of 1 to 200 characters, got ""'),
        (put("classes", ["a", 1]), r"classes\[1\] must be a string, got 1"),
        (put("classes", ["a", "a"]), r"classes must be a list of different names, got"),
        (put("classes", ["a", "b"]), "it lacks the entry 'self_test.expected.labels'"),
        (with_classes([2] * 20), r"expected.labels must be a list of \d+ labels, one for each score"),
        (with_classes([2]), r"expected.labels\[0\] must be an integer from 0 to 1, got 2"),
        (with_classes([-1]), r"expected.labels\[0\] must be an integer from 0 to 1, got -1"),
        (with_classes([0.0]), r"expected.labels\[0\] must be an integer from 0 to 1, got 0.0"),
        (put("extras", []), r"extras must be an object, got \[\]"),
        (with_extra({"shape": [3]}), "it lacks the entry 'extras.tail.kind'"),
        (
            with_extra({"shape": [3], "kind": "box"}),
            'extras.tail.kind must be "points" or "values", got "box"',
        ),
        (with_extra({"shape": [3], "kind": "points"}), "extras.tail.shape must be one that ends with 2"),
        (with_extra({"shape": [0], "kind": "values"}), r"tail.shape\[0\] must be a positive integer, got 0"),
        (with_extra({"shape": [1] * 9, "kind": "values"}), "tail.shape must be a list of at most 8 sizes"),
        (with_extra({"shape": [512, 512], "kind": "values"}), "shape must be that of at most 65536 numbers"),
        (put("extras", {"labels": {}}), "extras.labels must be of a name that is an identifier other than"),
        (put("extras", {"a b": {}}), "extras.a b must be of a name that is an identifier other than"),
        (
            with_extra({"shape": [3], "kind": "values"}),
            r"expected.extras.tail\[0\] must be a list of 3 numbers, got 2 of them",
        ),
        (
            with_extra({"shape": [2], "kind": "points"}, limits={"cpu": 1, "cuda": -1}),
            "tolerance.cuda.extras.tail must be a finite float32 number of at least 0, got -1",
        ),
        (put("libraries", {}), "libraries must be a list of at most 16 libraries, got {}"),
        (
            put("libraries", [LIBRARY] * 17),
            "libraries must be a list of at most 16 libraries, got 17 of them",
        ),
        (put("libraries", [LIBRARY, LIBRARY]), "libraries must be a list of libraries with different names"),
        (put("libraries", [{**LIBRARY, "name": ".so"}]), r"libraries\[0\].name must be a file name of 1 to"),
        (put("libraries", [{**LIBRARY, "name": "a/b"}]), r"libraries\[0\].name must be a file name of 1 to"),
        (put("libraries", [{**LIBRARY, "sha256": "0"}]), r"libraries\[0\].sha256 must be 64 digits"),
        (put("libraries", [{**LIBRARY, "platform": 1}]), r"libraries\[0\].platform must be a string"),
        (
            put("parity", [{**PARITY, "runtime": "Rust"}]),
            r'parity\[0\].runtime must be "Python" or "C\+\+", got',
        ),
        (
            put("parity", [PARITY, {**PARITY, "boxes": -1}]),
            r"parity\[1\].boxes must be a finite float32 number of",
        ),
        (put("parity", [{**PARITY, "batch": 0}]), r"parity\[0\].batch must be a positive integer, got 0"),
        (put("parity", [PARITY] * 1001), "parity must be a list of at most 1000 rows, got 1001"),
        (put("precision", 1), "precision must be an object, got 1"),
        (
            put("precision", {**PRECISION, "dtype": "int8"}),
            'precision.dtype must be "tf32", "float16" or "bfl',
        ),
        (put("precision", {**PRECISION, "pictures": -1}), "precision.pictures must be an integer from 0 to"),
        (put("precision", {**PRECISION, "max_box_change": -1}), "precision.max_box_change must be a finite"),
        (
            lambda values: values["self_test"]["tolerance"].pop("cpu"),
            "lacks the entry 'self_test.tolerance.cpu'",
        ),
    ],
)
def test_malformed_values_are_named(values: Values, change: Callable[[Values], None], message: str) -> None:
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
        put("ops", ["a::b(" + "(" * 15 + ")" * 15 + ") -> ()"]),
        put("defaults.score_threshold", 1),
        put("canvas", {"height": 1, "width": 16384, "channels": 3, "fill": 255, "more": 1}),
        put("reading", {"orientation": "stored", "jpeg_oversampling": 0}),
        put("classes", []),
        put("extras", {}),
        put("precision", PRECISION),
        put("libraries", [LIBRARY]),
        with_classes([1]),
        with_extra({"shape": [2], "kind": "points"}),
        with_extra({"shape": [1, 2, 1], "kind": "values"}),
    ],
)
def test_what_the_rules_allow_is_read(values: Values, change: Callable[[Values], None]) -> None:
    changed = copy.deepcopy(values)
    change(changed)
    ArtifactMetadata.from_json(json.dumps(changed))


def test_canvas_and_reading_are_kept(values: Values) -> None:
    changed = copy.deepcopy(values)
    changed["canvas"] = {"height": 192, "width": 320, "channels": 3, "fill": 114}
    changed["reading"] = {"orientation": "stored", "jpeg_oversampling": 3}
    metadata = ArtifactMetadata.from_json(json.dumps(changed))
    assert metadata.canvas == Canvas(192, 320, 3, 114)
    assert metadata.reading == Reading("stored", 3)
    assert ArtifactMetadata.from_json(metadata.to_json()).canvas == metadata.canvas


def test_the_parity_is_kept(values: Values) -> None:
    rows = [PARITY, {**PARITY, "runtime": "C++", "loss": None}]
    metadata = ArtifactMetadata.from_json(json.dumps({**values, "parity": rows}))
    assert metadata.parity[0] == Parity("Python", "cpu", 7, 30, 0.01, 0.001, 1, 1e-6, 12.5)
    assert metadata.parity[1].loss is None
    assert json.loads(metadata.to_json())["parity"] == rows
    assert ArtifactMetadata.from_json(json.dumps(values)).parity == ()


def test_the_precision_is_kept(values: Values) -> None:
    metadata = ArtifactMetadata.from_json(json.dumps({**values, "precision": PRECISION}))
    assert metadata.precision == Precision("float16", "cuda", 12, 30, 0.01, 1.5, 0.004)
    assert json.loads(metadata.to_json())["precision"] == PRECISION
    assert ArtifactMetadata.from_json(json.dumps(values)).precision is None


def test_classes_and_extras_are_kept(values: Values) -> None:
    changed = copy.deepcopy(values)
    with_classes([1])(changed)
    with_extra({"shape": [1, 2], "kind": "points"})(changed)
    metadata = ArtifactMetadata.from_json(json.dumps(changed))
    assert metadata.classes == ("cat", "dog")
    assert metadata.extras == {"tail": Extra((1, 2), "points")}
    assert metadata.self_test.labels is not None
    assert metadata.self_test.labels[:2].tolist() == [1, 0]
    tail = metadata.self_test.extras["tail"]
    assert tail.values[0].tolist() == [[1, 2.5]]
    assert tail.tolerances == {"cpu": 0.1, "cuda": 0.5}
    assert ArtifactMetadata.from_json(metadata.to_json()).to_json() == metadata.to_json()


def test_the_first_format_says_nothing_of_canvas_and_reading(values: Values) -> None:
    older = copy.deepcopy(values) | {"format_version": 1}
    older["canvas"] = older["reading"] = older["classes"] = older["extras"] = (
        "whatever"  # entries that this format did not know
    )
    metadata = ArtifactMetadata.from_json(json.dumps(older))
    assert (metadata.canvas, metadata.reading) == (None, Reading())
    assert "canvas" not in json.loads(metadata.to_json())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "a": 2}', "'a' occurs twice"),
        ("{" + ",".join(f'"k{i}": 0' for i in range(1001)) + "}", "at most 1000 keys, got 1001"),
        ('[{"b": {"a": 1, "a": 1}}]', "'a' occurs twice"),
        ("[NaN]", "must be finite, got NaN"),
        ("[-Infinity]", "must be finite, got -Infinity"),
        ("[1e999]", "must be finite, got 1e999"),
        ("[" + "9" * 400 + "]", "must be finite, got 999"),
        ("\ufeff{}", "BOM"),
        ("[" * 65 + "]" * 65, "at most 64 levels"),
        ("[" * 200_000, "at most 64 levels"),
        ('{"a":' * 65 + "1" + "}" * 65, "at most 64 levels"),
        (r'["\ud800"]', "surrogates"),
        ("", "Expecting value"),
        ("{} {}", "Extra data"),
        ("{'a': 1}", "Expecting property name"),
        ("[1,]", "Expecting value|trailing comma"),
        ('["\t"]', "control character"),
        ('["' + "[" * 100, "Unterminated string|at most 64"),
    ],
)
def test_lenient_json_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_strict(text)


@pytest.mark.parametrize("part", ['\\"', "\\", "[", '"a":', '"k": 1, ', "1" * 99 + ","])
@pytest.mark.parametrize("start", ["", '"', "[", '{"a": "', "{"])
def test_large_nonsense_is_refused_soon(start: str, part: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_strict(start + part * 300_000)


def test_strict_json_is_read() -> None:
    assert parse_strict("[" * 64 + "]" * 64)
    text = r'{"a\"[": "[[[[\\", "b": [1, -2.5e3, true, null, "\ud83d\ude00"]}'
    assert parse_strict(text) == json.loads(text)
    assert parse_strict('"' + "[" * 100 + '"') == "[" * 100
