"""The one place that makes graphs with torch.export."""

import contextlib
import io
import logging
import sys
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from lensbox.common.errors import ArtifactError
from lensbox.model.protocol_check import location
from lensbox.runtime.formats.program import quiet_export

BATCH = "batch"
# Some of torch's operators on GPUs put the batch into a dimension of the grid, and their graphs say so.
_MOST = 65_535
_ADVICE = "\n  pixels and thresholds must decide neither which way the code goes nor how large a tensor is"


def traced_detect(module: nn.Module, images: Tensor, thresholds: tuple[Tensor, ...]) -> ExportedProgram:
    """A `DetectGraph`, or what has its inputs, as a graph for any batch.

    images: an example with a batch of at least 2, since torch.export takes a size of 1 for a constant.
    Raises ArtifactError, naming cause and line.
    """
    if images.shape[0] < 2:
        raise ValueError(f"images must be a batch of at least 2, got the shape {list(images.shape)}")
    shapes = ({0: torch.export.Dim(BATCH, max=_MOST)}, *(None for _ in thresholds))
    try:
        with torch.no_grad(), _without_graphs():
            return torch.export.export(module, (images, *thresholds), dynamic_shapes=shapes, strict=False)
    except Exception as error:  # whatever the user's code and the tracer raise
        where, reason = location(error), innermost_reason(error)
        advice = _ADVICE if "data-dependent" in reason else ""
        raise ArtifactError(
            "torch.export cannot make a graph of the detector for any batch and thresholds: "
            f"{reason}{f' ({where})' if where else ''}{advice}"
        ) from error


@contextlib.contextmanager
def _without_graphs() -> Iterator[None]:
    """Keeps off stderr what torch.export prints of a failure: the whole graph, which buries the reason. Not
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


def in_core_aten(program: ExportedProgram) -> ExportedProgram:
    """The graph with operators of Core ATen, into which torch decomposes others of ATen; those of libraries
    stay. Raises ArtifactError."""
    try:
        with quiet_export():
            decomposed: ExportedProgram = program.run_decompositions()
    except Exception as error:  # torch's own, which are many
        raise ArtifactError(
            f"torch cannot decompose the detector's graph into Core ATen: {innermost_reason(error)}"
        ) from error
    return decomposed


def innermost_reason(error: BaseException) -> str:
    """The innermost cause's message up to its first empty line, on one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).strip().split("\n\n")[0].split()) or type(error).__name__
