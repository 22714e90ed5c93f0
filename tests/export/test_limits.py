"""The metadata of an artifact allow exactly what a DetectorSpec allows."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from lensbox.artifact.metadata import ArtifactMetadata, Canvas, Extra, Library, Reading, Thresholds
from lensbox.artifact.self_test import ExpectedExtra
from lensbox.export.formats.torchscript import described_libraries
from lensbox.model import DetectorSpec
from lensbox.runtime import load_artifact


@pytest.fixture(scope="module")
def metadata(artifact_path: Path) -> ArtifactMetadata:
    return load_artifact(artifact_path).metadata


def as_specification(values: dict[str, Any]) -> None:
    """Raises ValueError unless these are values of a DetectorSpec."""
    DetectorSpec(**{"height": 32, "width": 32, **values})


def as_metadata(metadata: ArtifactMetadata, values: dict[str, Any]) -> None:
    """Raises ValueError unless metadata with these values can be read."""
    canvas = {"height": 32, "width": 32, **values}
    classes = tuple(values.get("classes", ()))
    extras = {name: Extra(tuple(shape), "points") for name, shape in values.get("points", {}).items()}
    extras |= {name: Extra(tuple(shape), "values") for name, shape in values.get("values", {}).items()}
    count = len(metadata.self_test.scores)
    expected = {
        name: ExpectedExtra(
            extra.kind, torch.zeros(count, math.prod(extra.shape)), dict.fromkeys(("cpu", "cuda"), 0.0)
        )
        for name, extra in extras.items()
    }
    labels = torch.zeros(count, dtype=torch.int64) if classes else None
    changed = dataclasses.replace(
        metadata,
        canvas=Canvas(**{name: canvas[name] for name in Canvas.__dataclass_fields__ if name in canvas}),
        reading=Reading(**{name: values[name] for name in Reading.__dataclass_fields__ if name in values}),
        classes=classes,
        extras=extras,
        defaults=Thresholds(values.get("score_threshold", 0.5), values.get("iou_threshold", 0.5)),
        self_test=dataclasses.replace(metadata.self_test, labels=labels, extras=expected),
    )
    ArtifactMetadata.from_json(changed.to_json())


def allowed(check: Any, *arguments: Any) -> bool:
    try:
        check(*arguments)
    except ValueError:
        return False
    return True


def names(count: int) -> tuple[str, ...]:
    return tuple(f"n{number}" for number in range(count))


@pytest.mark.parametrize(
    ("field", "inside", "outside"),
    [
        ("height", (1, 16_384), (0, 16_385, True)),
        ("width", (1, 16_384), (0, 16_385)),
        ("channels", (1, 3), (0, 2, 4)),
        ("fill", (0, 255), (-1, 256)),
        ("jpeg_oversampling", (0, 1000), (-1, 1001)),
        ("orientation", ("exif", "stored"), ("", "upright")),
        ("score_threshold", (0, 1), (-0.001, 1.001)),
        ("iou_threshold", (0, 1), (-0.001, 1.001)),
        ("classes", (("a",), ("x" * 200,), names(10_000)), (("",), ("x" * 201,), names(10_001), ("a", "a"))),
        ("points", ({"p": (2,)}, {"p": (5, 2)}), ({"p": ()}, {"p": (2, 3)})),
        (
            "values",
            ({"v": ()}, {"v": (1,) * 8}, {"v": (256, 256)}, dict.fromkeys(names(100), ())),
            (
                *({"v": (1,) * 9}, {"v": (256, 257)}, {"v": (0,)}, dict.fromkeys(names(101), ())),
                *({"boxes": ()}, {"labels": ()}, {"a-b": ()}, {"": ()}, {"ü": ()}, {"1a": ()}),
            ),
        ),
    ],
)
def test_both_have_the_same_limits(
    field: str, inside: tuple[Any, ...], outside: tuple[Any, ...], metadata: ArtifactMetadata
) -> None:
    for values, expected in ((inside, True), (outside, False)):
        for value in values:
            assert allowed(as_specification, {field: value}) is expected, f"DetectorSpec: {value!r:.100}"
            assert allowed(as_metadata, metadata, {field: value}) is expected, f"metadata: {value!r:.100}"


@pytest.mark.parametrize(
    "name", ["a.so", "_", "x" * 100, "x" * 101, ".so", "-a", "+a", "a b", "ü.so", "a+b-c"]
)
def test_names_of_libraries(name: str, metadata: ArtifactMetadata, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"")

    def read() -> None:
        library = Library(name, "0" * 64, "2.13.0", "linux-x86_64")
        ArtifactMetadata.from_json(dataclasses.replace(metadata, libraries=(library,)).to_json())

    def written() -> bool:
        try:
            described_libraries([tmp_path / name])
        except RuntimeError:
            return False
        return True

    assert allowed(read) == written()
