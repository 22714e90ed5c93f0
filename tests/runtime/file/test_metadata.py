"""`lensbox.json`, read strictly; errors name the path of a value.

The C++ reader runs the same table of cases (cpp_runtime/tests/metadata_test.cpp).
"""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from damaged_files import Values

from lensbox.runtime.file.metadata import ArtifactMetadata, Canvas, Extra, Precision, Reading

_CASES = json.loads(
    (Path(__file__).parents[3] / "cpp_runtime/tests/metadata_cases.json").read_text(encoding="utf-8")
)


def changed(place: str, *value: Any) -> Values:
    """Return the good document with another value at a place such as "/canvas/fill", or without it."""
    document: Values = copy.deepcopy(_CASES["good"])
    values: Any = document
    *parents, last = (int(key) if key.isdigit() else key for key in place.split("/")[1:])
    for key in parents:
        values = values[key]
    if value:
        values[last] = value[0]
    else:
        del values[last]
    return document


def read(document: Values) -> ArtifactMetadata:
    return ArtifactMetadata.from_json(json.dumps(document))


@pytest.mark.parametrize("case", _CASES["refused"], ids=lambda case: case[0])
def test_names_malformed_values(case: list[Any]) -> None:
    *change, name = case
    with pytest.raises(ValueError, match=r"it is malformed|format.version") as caught:
        read(changed(*change))
    assert name in str(caught.value)


@pytest.mark.parametrize("case", _CASES["allowed"], ids=lambda case: case[0])
def test_reads_allowed_values(case: list[Any]) -> None:
    read(changed(*case))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed("/canvas/height", 0), "canvas.height must be greater than or equal to 1, got 0"),
        (changed("/canvas"), "lacks the entry 'canvas'"),
        (changed("/ops", ["a::b() -> ()"] * 1001), "ops must have at most 1000 items"),
        (changed("/ops/0", "a::b(" + "x" * 5000 + ") -> ()"), r"ops\[0\] must have at most 4096 characters"),
        (changed("/classes", [str(i) for i in range(10_001)]), "classes"),
        (changed("/extras", {f"x{i}": {"shape": [], "kind": "values"} for i in range(101)}), "extras"),
    ],
)
def test_names_the_rule(change: Values, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(change)


def test_keeps_values() -> None:
    metadata = read(_CASES["good"])
    assert metadata.canvas == Canvas(24, 32, 3, 7)
    assert metadata.reading == Reading("stored", 3)
    assert metadata.precision == Precision("float16", "cuda", 12, 30, 0.01, 1.5, 0.004)
    assert metadata.classes == ("red", "blue")
    assert metadata.extras == {"cell": Extra((2,), "values"), "eyes": Extra((1, 2), "points")}
    assert metadata.self_test.labels is not None
    assert metadata.self_test.labels.tolist() == [1]
    cell = metadata.self_test.extras["cell"]
    assert cell.values.tolist() == [[1, 2.5]]
    assert cell.tolerances == {"cpu": 0.1, "cuda": 0.5}
    written = json.loads(metadata.to_json())
    assert {key: written[key] for key in ("canvas", "reading", "precision")} == {
        key: _CASES["good"][key] for key in ("canvas", "reading", "precision")
    }
    assert ArtifactMetadata.from_json(metadata.to_json()).to_json() == metadata.to_json()


_GOOD = json.dumps(_CASES["good"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "a": 2}', "'a' occurs twice"),
        ('{"b": [{"a": 1, "a": 1}]}', "'a' occurs twice"),
        ("[NaN]", "NaN"),
        ("[-Infinity]", "-Infinity"),
        ("\ufeff{}", "BOM"),
        ("[" * 200_000, "nested too deeply"),
        ("", "no strict JSON"),
        ("[]", "format_version"),
        (" " * ((16 << 20) + 1), "at most 16777216"),
        # JSON that only one of the two parsers reads:
        (_GOOD.replace('"score_threshold": 0.5', '"score_threshold": 1e999'), "finite"),
        (
            _GOOD.replace('"input": {', '"input": {"a": ' + "[" * 500 + "]" * 500),
            "recursion limit|nested too deeply",
        ),
        (_GOOD.replace('"name": "', r'"name": "\ud800'), "Invalid JSON"),
    ],
)
def test_rejects_lenient_json(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ArtifactMetadata.from_json(text)
