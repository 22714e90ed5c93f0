"""Tiles as callers give them, and detections as JSON."""

import json
import math

import pytest

from lensbox.common.detections import READ_DETECTIONS, TileSpec, tile_spec


def test_numbers_that_are_not_finite_are_null() -> None:
    detection = {"box": [0.0, None, 1.0, 1.0], "score": 0.5, "label": "car"}
    extras = {"age": None, "eyes": [[1, 2]]}
    document = {"width": 1, "height": 1, "detections": [{**detection, "extras": extras}]}
    found = READ_DETECTIONS.validate_json(json.dumps(document))
    assert math.isnan(found.detections[0].box[1])
    assert json.dumps(found.to_json(), allow_nan=False) == json.dumps(document)


def test_what_is_not_given_is_left_out_and_further_keys_are_skipped() -> None:
    detection = {"box": [0.0, 0.0, 1.0, 1.0], "score": 0.5}
    document = {"width": 1, "height": 1, "detections": [detection]}
    found = READ_DETECTIONS.validate_python({**document, "seconds": 3})
    assert (found.detections[0].label, found.detections[0].extras) == (None, {})
    assert found.to_json() == document
    with pytest.raises(ValueError, match="height"):
        READ_DETECTIONS.validate_python({"width": 1, "detections": []})


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("auto", TileSpec()),
        ("512", TileSpec(512)),
        ("512,0.5", TileSpec(512, 0.5)),
        (TileSpec(9), TileSpec(9)),
    ],
)
def test_reads_a_specification(text: str | TileSpec, spec: TileSpec) -> None:
    assert tile_spec(text) == spec


@pytest.mark.parametrize(
    "text", ["", "big", "0", "-5", "512,1", "512,-0.1", "512,nan", "512,x", "512,", "1.5", "6_4", " 64"]
)
def test_refuses_a_specification(text: str) -> None:
    with pytest.raises(ValueError, match="tiles must"):
        tile_spec(text)
