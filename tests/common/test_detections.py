"""Detections as JSON."""

import json
import math

import pytest

from lensbox.common.detections import READ_DETECTIONS


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
