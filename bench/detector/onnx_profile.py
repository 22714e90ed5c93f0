"""Where a call into onnxruntime spends its time, by its own profile."""

import json
from pathlib import Path
from typing import Any

from lensbox.bench.detector import operators
from lensbox.bench.detector.operators import Shape, Split

_CALL = "model_run"
_KERNEL = "_kernel_time"

_ELEMENTWISE = ("Add", "Clip", "Div", "Exp", "HardSigmoid", "HardSwish", "Mul", "Relu", "Sub")
_KINDS = {
    **dict.fromkeys(("Resize", "Upsample"), operators.RESIZE),
    "Sigmoid": operators.SELECTION,
    **dict.fromkeys(
        (
            *("Cast", "Concat", "Gather", "Identity", "ReorderInput", "ReorderOutput", "Reshape", "Slice"),
            *("Split", "Squeeze", "Transpose", "Unsqueeze"),
        ),
        operators.LAYOUT,
    ),
}


def read_profile(path: Path, anchors: int) -> list[Split]:
    """The calls of a session's profile, split up; what operators do not take is between them."""
    events = json.loads(path.read_text())
    calls = [event for event in events if event.get("name") == _CALL]
    kernels = [event for event in events if event.get("cat") == "Node" and event["name"].endswith(_KERNEL)]
    return [_split(call, kernels, anchors) for call in calls]


def _split(call: dict[str, Any], kernels: list[dict[str, Any]], anchors: int) -> Split:
    split = Split()
    between = float(call["dur"])
    for kernel in kernels:
        if call["ts"] <= kernel["ts"] < call["ts"] + call["dur"]:
            split.add(_kind(kernel["args"], anchors), kernel["dur"])
            between -= kernel["dur"]
    split.add(operators.BETWEEN, between, operators=0)
    return split


def _kind(arguments: dict[str, Any], anchors: int) -> str:
    name = arguments["op_name"]
    # [{"float": [1, 16, 128, 128]}, ...]; the shape of a scalar is empty.
    inputs: list[dict[str, Shape]] = arguments["input_type_shape"]
    shapes = [shape for value in inputs for shape in value.values() if shape]
    if name in ("Conv", "FusedConv"):
        return operators.convolution_kind(shapes[0], shapes[1])
    if name in _ELEMENTWISE:
        return operators.elementwise_kind(shapes[-1], anchors)
    return _KINDS.get(name, operators.OTHER)
