"""Detections as JSON has them: the same form in the service, the C++ runner and whatever else prints them."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from lensbox.runtime.detection import Detections


def detections_to_json(found: Detections, classes: Sequence[str]) -> list[dict[str, Any]]:
    """One object for each detection, in their order, of what `json.dumps` takes.

    `box` is [x1, y1, x2, y2] in pixels of the photograph and `score` a number. `label`, where there are
    `classes`, which are the artifact's, is the name of the class; `extras`, where there are some, has them by
    name, nested as their shapes say. What is not finite becomes null, since JSON has no other word for it.
    """
    columns: dict[str, list[Any]] = {
        "box": numbers_to_json(found.boxes),
        "score": numbers_to_json(found.scores),
    }
    if found.labels is not None:
        columns["label"] = [classes[label] for label in found.labels.tolist()]
    if found.extras:
        extras = {name: numbers_to_json(values) for name, values in found.extras.items()}
        rows = zip(*extras.values(), strict=True)
        columns["extras"] = [dict(zip(extras, row, strict=True)) for row in rows]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def numbers_to_json(values: Tensor) -> list[Any]:
    """Nested as the shape says; what is not finite is null."""
    numbers: list[Any] = values.tolist()
    # By numpy: each call of torch would give Python's lock away, and wait for it.
    is_finite = bool(np.isfinite(values.numpy()).all())
    return numbers if is_finite else [_without_nan(number) for number in numbers]


def _without_nan(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    return value if math.isfinite(value) else None
