"""`lensbox.json`, read strictly; errors name the path of a value.

The C++ reader runs the same table of cases (cpp_runtime/tests/metadata_test.cpp).
"""

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from damaged_files import Values

from lensbox.runtime import Canvas
from lensbox.runtime.file.metadata import MAX_METADATA_SIZE, ArtifactMetadata

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


_CPP_LIMITS = Path(__file__).parents[3] / "cpp_runtime/core/file/metadata.h"
_EXTRA = {"shape": [], "kind": "values"}
# Documents in which as many of something are at the limit, or beyond it. Two values depend on others: with a
# shape of so many numbers, the self-test would need them.
_AS_MANY: dict[str, Callable[[int], Values]] = {
    "kMostOps": lambda count: changed("/ops", ["a::b() -> ()"] * count),
    "kMaxCanvasSide": lambda side: changed("/canvas/height", side),
    "kMaxJpegOversampling": lambda factor: changed("/reading/jpeg_oversampling", factor),
    "kMostClasses": lambda count: changed("/classes", [str(number) for number in range(count)]),
    "kMostCharacters": lambda count: changed("/classes/1", "é" * count),
    "kMostExtras": lambda count: changed("/extras", {f"x{number}": _EXTRA for number in range(count)}),
    "kMostDimensions": lambda count: changed("/extras/cell/shape", [2] + [1] * (count - 1)),
    "kMostNumbers": lambda count: changed("/extras/cell/shape", [count]),
    "kMostCpuFeatures": lambda count: changed("/compiled/cpu_features", ["avx2"] * count),
    "kMostPixels": lambda count: changed("/self_test/image", {"shape": [1, 1, count], "pixels": [0] * count}),
}


def test_has_the_limits_of_cpp() -> None:
    text = _CPP_LIMITS.read_text(encoding="utf-8")
    limits = {name: int(number) for name, number in re.findall(r"(k\w+) = (\d+);", text)}
    assert limits.pop("kMostMetadata") == MAX_METADATA_SIZE
    ArtifactMetadata.from_json(json.dumps(_CASES["good"]).ljust(MAX_METADATA_SIZE))
    assert limits.keys() == _AS_MANY.keys()
    for name, limit in limits.items():
        if name in ("kMostExtras", "kMostNumbers"):
            with pytest.raises(ValueError, match=r"self_test\.expected\.extras"):
                read(_AS_MANY[name](limit))
        else:
            read(_AS_MANY[name](limit))
        with pytest.raises(ValueError, match="it is malformed") as caught:
            read(_AS_MANY[name](limit + 1))
        assert "self_test.expected" not in str(caught.value), name


def test_names_the_rule() -> None:
    with pytest.raises(ValueError, match=r"canvas\.height must be greater than or equal to 1, got 0"):
        read(changed("/canvas/height", 0))
    with pytest.raises(ValueError, match="lacks the entry 'canvas'"):
        read(changed("/canvas"))
    with pytest.raises(ValueError, match=r"ops\[0\] must have at most 4096 characters"):
        read(changed("/ops/0", "a::b(" + "x" * 5000 + ") -> ()"))


def test_keeps_values() -> None:
    metadata = read(_CASES["good"])
    assert metadata.canvas == Canvas(24, 32, 3, 7, "crop", "bicubic", "bgr", (0.5, 0, -1), (1, 0.25, 2))
    assert metadata.self_test.expected.extras["cell"].tolist() == [[1, 2.5]]
    assert _CASES["good"] | json.loads(metadata.to_json()) == _CASES["good"]


def test_files_hold_no_tolerance_of_overlaps() -> None:
    tolerance = read(changed("/self_test/tolerance/cpu/iou", "all")).self_test.tolerance
    assert (tolerance.cpu.iou, tolerance.cuda.iou) == (0.01, 0.02)


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
