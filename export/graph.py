"""The graph of a detector's `detect`, made with torch.export once for all formats that hold a graph."""

import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.overrides import TorchFunctionMode

import lensbox.ops  # noqa: F401 (registers torch.ops.lensbox)
from lensbox.common.errors import ArtifactError
from lensbox.model import Detector
from lensbox.model.protocol_check import location, named

BATCH = "batch"
# Some of torch's operators on GPUs put the batch into a dimension of the grid, and their graphs say so.
_MOST = 65_535
_EXAMPLES = 2  # torch.export takes a batch of 1 for a constant
_ADVICE = "\n  pixels and thresholds must decide neither which way the code goes nor how large a tensor is"
_FIXED_BATCH = (
    "\n  the network takes batches of one size: --batch 1 (or another size) makes a file whose runtimes cut "
    "and fill batches"
)
_BUILTIN_NAMESPACES = ("aten", "prims", "prim")

# `padded_nms` in a graph: this overload takes thresholds that are inputs of the graph.
NMS = torch.ops.lensbox.padded_nms.tensor_thresholds
Kept = tuple[Tensor, Tensor, Tensor, Tensor]


class TensorThresholds(TorchFunctionMode):
    """Within it, `torch.ops.lensbox.padded_nms`, whoever calls it, is the overload for tensors.

    An exported graph takes its thresholds as inputs, but the op takes numbers, of which an export would make
    constants.
    """

    def __torch_function__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """See torch.overrides."""
        if func in (torch.ops.lensbox.padded_nms, torch.ops.lensbox.padded_nms.default):
            func = _with_tensor_thresholds
        return func(*args, **(kwargs or {}))


def _with_tensor_thresholds(
    boxes: Tensor,
    scores: Tensor,
    iou_threshold: Any,
    score_threshold: Any,
    *others: Any,
    **keywords: Any,
) -> Kept:
    iou, score = (
        value.double() if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
        for value in (iou_threshold, score_threshold)
    )
    found: Kept = NMS(boxes, scores, iou, score, *others, **keywords)
    return found


class _DetectGraph(nn.Module):
    """`detect` with tensors as thresholds and a tuple of outputs, in the order of the specification."""

    def __init__(self, detector: Detector) -> None:
        super().__init__()
        self.detector = cast(nn.Module, detector)
        self.outputs = output_names(detector)

    def forward(self, images: Tensor, score_threshold: Tensor, iou_threshold: Tensor) -> tuple[Tensor, ...]:
        """images: uint8 [B, c, h, w]; thresholds: float32 []."""
        with torch.no_grad(), TensorThresholds():
            found = named(self.detector.detect(images, score_threshold, iou_threshold))  # type: ignore[operator]
        return tuple(found[name] for name in self.outputs)


def output_names(detector: Detector) -> tuple[str, ...]:
    """Return the names of the outputs of `detect`, in the order in which files give them."""
    specification = detector.specification
    labels = ["labels"] if specification.classes else []
    return ("boxes", "scores", "counts", *labels, *specification.extras)


def trace_detect(
    detector: Detector, thresholds: tuple[float, float], device: torch.device, batch: int | None = None
) -> ExportedProgram:
    """Return the graph of `detect` for batches of one size, None for any. Raises ArtifactError with the line.

    Inputs: canvases, uint8 [B, c, h, w] on the device, and thresholds of scores and IoU, float32 [] on the
    CPU, where they are read without waiting for the device. The detector must be on the device, in eval mode.
    """
    specification = detector.specification
    size = specification.channels, specification.height, specification.width
    generator = torch.Generator().manual_seed(0)
    shape = (batch or _EXAMPLES, *size)
    canvases = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator).to(device)
    return trace(_DetectGraph(detector).eval(), canvases, thresholds, any_batch=batch is None)


def trace(
    module: nn.Module, canvases: Tensor, thresholds: tuple[float, float], any_batch: bool = True
) -> ExportedProgram:
    """Return the graph of a module that takes the inputs of `trace_detect`. Raises ArtifactError.

    canvases: an example; for any batch, of at least 2.
    """
    numbers = tuple(torch.tensor(value, dtype=torch.float32) for value in thresholds)
    sizes = {0: torch.export.Dim(BATCH, max=_MOST)} if any_batch else None
    shapes = (sizes, *(None for _ in numbers))
    try:
        with torch.no_grad(), _without_graphs():
            return torch.export.export(module, (canvases, *numbers), dynamic_shapes=shapes, strict=False)
    except Exception as error:  # whatever the user's code and the tracer raise
        where, reason = location(error), innermost_reason(error)
        if "data-dependent" in reason:
            advice = _ADVICE
        else:
            advice = _FIXED_BATCH if "specialized" in reason or "Constraints violated" in reason else ""
        raise ArtifactError(
            "torch.export cannot make a graph of the detector for any batch and thresholds: "
            f"{reason}{f' ({where})' if where else ''}{advice}"
        ) from error


@contextlib.contextmanager
def quiet_export() -> Iterator[None]:
    """Silence torch's warnings about itself in calls of torch.export.

    Not thread-safe: all threads share Python's warning filters.
    """
    with warnings.catch_warnings():
        # torch 2.11 to 2.13 use a class of their own that they have deprecated.
        warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)`", FutureWarning)
        # torch 2.11 makes tensors of bytes that it then only reads.
        warnings.filterwarnings("ignore", "The given buffer is not writable", UserWarning)
        yield


@contextlib.contextmanager
def _without_graphs() -> Iterator[None]:
    """Keep off stderr what torch.export prints of a failure: the whole graph, which buries the reason. Not
    thread-safe, as all threads share stderr."""
    logger = logging.getLogger("torch.fx.experimental.symbolic_shapes")
    printed = io.StringIO()
    logger.addFilter(_is_no_search_for_code)
    try:
        with contextlib.redirect_stderr(printed):
            yield
        sys.stderr.write(printed.getvalue())  # of the user's code
    finally:
        logger.removeFilter(_is_no_search_for_code)


def _is_no_search_for_code(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("Unable to find user code")


def decomposed(program: ExportedProgram, table: Mapping[Any, Callable[..., Any]]) -> ExportedProgram:
    """Return the graph with operators replaced by the functions of a table. Raises ArtifactError."""
    try:
        with quiet_export():
            result: ExportedProgram = program.run_decompositions(dict(table))
    except Exception as error:  # torch's own, which are many
        raise ArtifactError(
            f"torch cannot decompose the detector's graph: {innermost_reason(error)}"
        ) from error
    return result


def custom_ops(graph_module: fx.GraphModule) -> list[str]:
    """Return the schemas of the operators in the graph that are not torch's own, sorted."""
    schemas = set()
    for module in graph_module.modules():
        for node in getattr(module, "graph", fx.Graph()).nodes:
            target = node.target
            if isinstance(target, torch._ops.OpOverload) and target.namespace not in _BUILTIN_NAMESPACES:
                schemas.add(str(target._schema))
    return sorted(schemas)


def innermost_reason(error: BaseException) -> str:
    """Return the innermost cause's message up to its first empty line, on one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).strip().split("\n\n")[0].split()) or type(error).__name__
