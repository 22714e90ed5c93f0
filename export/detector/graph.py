"""Make the graph of `detect` with torch.export, for the formats that hold a graph."""

import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.overrides import TorchFunctionMode

import lensbox.ops  # noqa: F401 (registers torch.ops.lensbox)
from lensbox.common.errors import ArtifactError
from lensbox.model import Detector
from lensbox.model.protocol import Normalise
from lensbox.model.user_errors import location

BATCH = "batch"
# Some GPU operators of torch put the batch into a grid dimension, which limits the batch.
_MOST = 65_535
_EXAMPLES = 2  # torch.export treats a batch of 1 as a constant
_ADVICE = "\n  branches and sizes of tensors must not depend on pixels or thresholds"
_FIXED_BATCH = (
    "\n  the network takes batches of one size. A loop over images fixes the size: use whole tensors, "
    "and call padded_nms once for the whole batch. Else --batch 1 (or another size) makes a file for that "
    "size; runtimes cut and fill batches"
)
_BUILTIN_NAMESPACES = ("aten", "prims", "prim")

# `padded_nms` in a graph: this overload takes thresholds that are inputs of the graph.
NMS = torch.ops.lensbox.padded_nms.tensor_thresholds
Kept = tuple[Tensor, Tensor, Tensor, Tensor]


class FunctionMode(TorchFunctionMode):
    """Call `call(function, args, kwargs)` in place of each function of torch while active."""

    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self.call = call

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """See torch.overrides."""
        return self.call(func, args, kwargs or {})


def tensor_thresholds() -> FunctionMode:
    """Replace calls of `torch.ops.lensbox.padded_nms` by the overload for tensors.

    The thresholds of an exported graph are inputs. The op takes numbers, which an export would turn into
    constants.
    """

    def call(function: Any, args: Any, kwargs: Any) -> Any:
        if function in (torch.ops.lensbox.padded_nms, torch.ops.lensbox.padded_nms.default):
            function = _with_tensor_thresholds
        return function(*args, **kwargs)

    return FunctionMode(call)


def _with_tensor_thresholds(
    boxes: Tensor, scores: Tensor, iou_threshold: Any, score_threshold: Any, *others: Any, **keywords: Any
) -> Kept:
    iou, score = (
        value.double() if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
        for value in (iou_threshold, score_threshold)
    )
    found: Kept = NMS(boxes, scores, iou, score, *others, **keywords)
    return found


class TensorDetect(nn.Module):
    """`detect` with tensors as thresholds, which stay inputs of a graph or a trace."""

    def __init__(self, detector: Detector) -> None:
        super().__init__()
        self.detector = cast(Any, detector)

    def forward(self, images: Tensor, score_threshold: Tensor, iou_threshold: Tensor) -> dict[str, Tensor]:
        """Return the outputs. images: as `Detector.detect` takes them. thresholds: float32 []."""
        with torch.no_grad(), tensor_thresholds():
            return dict(self.detector.detect(images, score_threshold, iou_threshold))


class _DetectGraph(nn.Module):
    """`detect` with a tuple of outputs, in the order of the specification."""

    def __init__(self, detector: Detector) -> None:
        super().__init__()
        self.detect = TensorDetect(detector)
        self.normalise = Normalise(detector.specification)
        self.outputs = detector.specification.outputs

    def forward(self, images: Tensor, score_threshold: Tensor, iou_threshold: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs. images: uint8 [B, c, h, w]; thresholds: []."""
        found = self.detect(self.normalise(images), score_threshold.float(), iou_threshold.float())
        return tuple(found[name] for name in self.outputs)


def trace_detect(
    detector: Detector,
    thresholds: tuple[float, float],
    device: torch.device,
    batch: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> ExportedProgram:
    """Return the graph of `detect`. Raise ArtifactError with the line.

    Inputs of the graph: canvases, uint8 [B, c, h, w] on the device, and score and IoU thresholds, `dtype` []
    on the CPU, which avoids a synchronisation. thresholds: of the example. detector: on the device, in eval
    mode. batch: fixed batch size, None for any.
    """
    canvases = example_canvases(detector, batch).to(device)
    return trace(_DetectGraph(detector).eval().to(device), canvases, thresholds, batch is None, dtype)


def example_canvases(detector: Detector, batch: int | None = None) -> Tensor:
    """Return random canvases for a trace, uint8 [B, c, h, w]. batch: None for any."""
    shape = (batch or _EXAMPLES, *detector.specification.canvas_shape)
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)


def trace(
    module: nn.Module,
    canvases: Tensor,
    thresholds: tuple[float, float],
    any_batch: bool = True,
    dtype: torch.dtype = torch.float32,
) -> ExportedProgram:
    """Return the graph of a module with the inputs of `trace_detect`. Raise ArtifactError.

    canvases: an example, with a batch of at least 2 if any_batch.
    """
    numbers = (torch.tensor(value, dtype=dtype) for value in thresholds)
    sizes = {0: torch.export.Dim(BATCH, max=_MOST)} if any_batch else None
    # On failure torch prints the graph, which hides the reason. (All threads share stderr.)
    printed = io.StringIO()
    search = without_records("torch.fx.experimental.symbolic_shapes", "Unable to find user code")
    try:
        with torch.no_grad(), contextlib.redirect_stderr(printed), search:
            inputs, shapes = (canvases, *numbers), (sizes, None, None)
            program = torch.export.export(module, inputs, dynamic_shapes=shapes, strict=False)
    except Exception as error:  # whatever the user's code and the tracer raise
        reason = innermost_reason(error)
        if "data-dependent" in reason:
            advice = _ADVICE
        else:
            advice = _FIXED_BATCH if "specialized" in reason or "Constraints violated" in reason else ""
        raise ArtifactError(
            "torch.export cannot make a graph of the detector for any batch and thresholds: "
            f"{reason}{location(error)}{advice}"
        ) from error
    sys.stderr.write(printed.getvalue())  # output of the user's code
    return program


@contextlib.contextmanager
def quiet_export() -> Iterator[None]:
    """Silence warnings about torch's own code in calls of torch.export.

    Not thread-safe: all threads share Python's warning filters.
    """
    with warnings.catch_warnings():
        # torch 2.11 to 2.13 use a deprecated class of torch, also to copy a program.
        warnings.filterwarnings("ignore", r".*LeafSpec", FutureWarning)
        # torch 2.11 makes read-only tensors from bytes.
        warnings.filterwarnings("ignore", "The given buffer is not writable", UserWarning)
        yield


@contextlib.contextmanager
def without_records(logger_name: str, beginning: str) -> Iterator[None]:
    """Drop a logger's records whose messages begin so."""
    logger = logging.getLogger(logger_name)

    def keeps(record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith(beginning)

    logger.addFilter(keeps)
    try:
        yield
    finally:
        logger.removeFilter(keeps)


def is_custom(namespace: str) -> bool:
    """Return whether operators of a namespace are not torch's own, so that a library must register them."""
    return namespace not in _BUILTIN_NAMESPACES


def custom_ops(graph_module: fx.GraphModule) -> list[str]:
    """Return the schemas of the operators in the graph that are not torch's own, sorted."""
    schemas = set()
    for module in graph_module.modules():
        for node in getattr(module, "graph", fx.Graph()).nodes:
            target = node.target
            if isinstance(target, torch._ops.OpOverload) and is_custom(target.namespace):
                schemas.add(str(target._schema))
    return sorted(schemas)


def innermost_reason(error: BaseException) -> str:
    """Return the innermost cause's message up to its first empty line, on one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).strip().split("\n\n")[0].split()) or type(error).__name__
