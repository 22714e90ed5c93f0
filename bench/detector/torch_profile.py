"""Where a call into TorchScript spends its time, by torch's profiler."""

from typing import Any

from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile, record_function

from lensbox.bench.detector import operators
from lensbox.bench.detector.operators import Shape, Split
from lensbox.bench.detector.ways import Call
from lensbox.bench.profiler_log import silence_profiler

_MARK = "one call of the benchmark"

# They hand a convolution on, from one to the next, until one computes it.
_CONVOLUTION_LAYERS = ("aten::conv2d", "aten::convolution", "aten::_convolution")
_ELEMENTWISE = ("add", "clamp", "clamp_min", "div", "exp", "hardswish", "mul", "relu", "sub")
_KINDS = {
    **dict.fromkeys(("aten::sigmoid", "lensbox::padded_nms"), operators.SELECTION),
    "aten::upsample_nearest2d": operators.RESIZE,
    **dict.fromkeys(
        [
            f"aten::{name}"
            for name in (
                *("cat", "clone", "contiguous", "copy_", "detach", "flatten", "permute", "reshape"),
                *("select", "slice", "to", "transpose", "unsqueeze", "view"),
            )
        ],
        operators.LAYOUT,
    ),
}


def profile_torch(call: Call, calls: int, anchors: int) -> list[Split]:
    """Each of `calls` calls, split up; what operators do not take is between them: the interpreter, dispatch,
    and the profiler itself."""
    silence_profiler()
    # acc_events changes nothing for a single cycle, but torch 2.11 warns where it is not set.
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, acc_events=True) as profiler:
        for _ in range(calls):
            with record_function(_MARK):
                call()
    events = profiler.events()
    assert events is not None
    return [_split(event, anchors) for event in events if event.name == _MARK]


def _split(root: FunctionEvent, anchors: int) -> Split:
    split = Split()
    _descend(root, split, anchors)
    return split


def _descend(event: FunctionEvent, split: Split, anchors: int) -> None:
    """Into what is no operator: the mark, and TorchScript's methods."""
    split.add(operators.BETWEEN, event.self_cpu_time_total, operators=0)
    for child in event.cpu_children:
        if child.name in _CONVOLUTION_LAYERS:
            _add_convolution(child, split)
        elif "::" in child.name:
            split.add(_kind(child, anchors), child.cpu_time_total)
        else:
            _descend(child, split, anchors)


def _add_convolution(event: FunctionEvent, split: Split) -> None:
    handing_on = event.self_cpu_time_total
    while inner := next((child for child in event.cpu_children if child.name in _CONVOLUTION_LAYERS), None):
        event = inner
        handing_on += event.self_cpu_time_total
    split.add(operators.BETWEEN, handing_on, operators=0)
    # The shapes of the outermost layer begin with whatever else lies on the interpreter's stack.
    image, weight = _input_shapes(event)[:2]
    computing = event.cpu_time_total - event.self_cpu_time_total
    split.add(operators.convolution_kind(image, weight), computing)


def _kind(event: FunctionEvent, anchors: int) -> str:
    namespace, _, name = event.name.partition("::")
    if namespace == "aten" and name.rstrip("_") in _ELEMENTWISE:
        # The last ones are the operator's own, see above; the shape of a number is empty.
        last_input = [shape for shape in _input_shapes(event) if shape][-1]
        return operators.elementwise_kind(last_input, anchors)
    return _KINDS.get(event.name, operators.OTHER)


def _input_shapes(event: FunctionEvent) -> list[Shape]:
    """torch's stub has it as a shape, while it is a list of them."""
    shapes: Any = event.input_shapes
    return list(shapes)
