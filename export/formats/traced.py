"""Trace a detector that TorchScript cannot compile, or whose network has fixed batch sizes."""

import copy
import logging
import traceback
import warnings
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from lensbox.common.errors import ArtifactError
from lensbox.export.detector.graph import TensorDetect, example_canvases
from lensbox.export.detector.wrapper import own_methods
from lensbox.model import Detector
from lensbox.model.protocol import Normalise
from lensbox.model.user_errors import is_users, type_and_line
from lensbox.ops.canvas import cut_into_batches
from lensbox.runtime.torchscript import torchscript_call

_logger = logging.getLogger(__name__)

_TAKING_NUMBERS = [
    f"aten::{name}"
    for name in ("add", "sub", "mul", "div", "gt", "ge", "lt", "le", "eq", "ne", "add_", "mul_")
]
_MOST_PLACES = 5
_ANY_BATCH = 2  # a trace would treat a batch of 1 as a constant


class TracedDetector(nn.Module):
    """A detector with a traced `detect`; thresholds stay inputs.

    `detect` cuts images into batches of the traced sizes and fills the last batch.
    """

    sizes: list[int]

    def __init__(self, detector: Detector, thresholds: tuple[float, float], sizes: Sequence[int]) -> None:
        """Trace for batches of these sizes, none for any. Raise ArtifactError if tracing fails."""
        super().__init__()
        if own := own_methods(detector):
            raise ArtifactError(
                f"the detector's own {' and '.join(own)} cannot be traced: a trace holds only detect, and "
                "the other methods must be Lensbox's"
            )
        self.specification = detector.specification
        self.sizes = sorted(sizes, reverse=True)
        fixed = cast(Detector, copy.deepcopy(cast(nn.Module, detector)).requires_grad_(False))
        self.networks = nn.ModuleList(_trace(fixed, thresholds, size) for size in self.sizes or [_ANY_BATCH])
        if not self.sizes:
            _check_any_batch(cast(torch.jit.ScriptModule, self.networks[0]), fixed)

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> dict[str, Tensor]:
        """See `Detector.detect`."""
        score = torch.tensor(score_threshold, dtype=torch.float32)
        iou = torch.tensor(iou_threshold, dtype=torch.float32)
        parts: list[dict[str, Tensor]] = []
        for part in cut_into_batches(images, self.sizes):
            for index, network in enumerate(self.networks):
                if len(self.sizes) == 0 or self.sizes[index] == part.shape[0]:
                    parts.append(network(part, score, iou))
        found: dict[str, Tensor] = {}
        for name in parts[0].keys():  # noqa: SIM118 (TorchScript)
            found[name] = torch.cat([part[name] for part in parts])[: images.shape[0]]
        return found


def _trace(detector: Detector, thresholds: tuple[float, float], size: int) -> torch.jit.ScriptModule:
    canvases = Normalise(detector.specification)(example_canvases(detector, size))
    limits = (torch.tensor(value, dtype=torch.float32) for value in thresholds)
    places: list[str] = []

    def note(message: Any, category: type[Warning], *_: Any, **__: Any) -> None:
        if category.__name__ == "TracerWarning":
            frames = traceback.extract_stack()[:-2]  # without this function and `warnings`
            users = [frame for frame in frames if is_users(frame.filename)]
            places.append(f"{users[-1].filename}:{users[-1].lineno}: {users[-1].line}")

    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("always")
            warnings.simplefilter("ignore", DeprecationWarning)  # raised by torch.jit
            warnings.showwarning = note
            module, inputs = TensorDetect(detector).eval(), (canvases, *limits)
            traced = torch.jit.trace(module, inputs, check_trace=False, strict=False)
    except Exception as error:  # whatever the user's code and the tracer raise
        raise ArtifactError(f"the detector cannot be traced: {type_and_line(error)}") from error
    if places:
        lines = "\n  ".join(list(dict.fromkeys(places))[:_MOST_PLACES])
        _logger.warning("the trace may keep the values of these lines as constants:\n  %s", lines)
    assert isinstance(traced, torch.jit.ScriptModule)
    return traced


def _check_any_batch(network: torch.jit.ScriptModule, detector: Detector) -> None:
    """Run the trace for one image. Raise ArtifactError if the trace takes only the batch of its example."""
    canvas = torch.zeros(1, *detector.specification.canvas_shape, dtype=torch.uint8)
    try:
        with torchscript_call():
            network(Normalise(detector.specification)(canvas), torch.tensor(1.0), torch.tensor(0.5))
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1].removeprefix("RuntimeError: ")
        raise ArtifactError(
            f"the trace takes batches of {_ANY_BATCH} only, as the detector's code makes the batch size a "
            f"constant (for example, by a loop over images): {reason}. Compute with whole tensors, and call "
            "padded_nms once for the whole batch; or export for fixed batch sizes: --batch 1,8"
        ) from error


def replace_trace_constants(graph: Any) -> None:
    """Replace constants of a trace in place: the CPU by the device of the images, tensors by numbers.

    A trace records numbers as float64 tensors, which would make fused operators compute in float64.

    graph: of a frozen module's method, whose first argument is the images.
    """
    images = list(graph.inputs())[1]
    graph.setInsertPoint(next(graph.nodes()))
    device = graph.insertNode(graph.create("prim::device", [images], 1)).output()
    device.setType(torch._C.DeviceObjType.get())
    for constant in graph.findAllNodes("prim::Constant"):
        output = constant.output()
        if isinstance(output.type(), torch._C.DeviceObjType):
            output.replaceAllUsesWith(device)
    for kind in _TAKING_NUMBERS:
        for node in graph.findAllNodes(kind):
            number = list(node.inputs())[1]
            if isinstance(number.toIValue(), float) and isinstance(number.type(), torch.TensorType):
                graph.setInsertPoint(node)
                node.replaceInput(1, graph.insertConstant(number.toIValue()))
    torch._C._jit_pass_dce(graph)
    torch._C._jit_pass_lint(graph)
