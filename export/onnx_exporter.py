"""The one place that talks to torch's ONNX exporter."""

import contextlib
import logging
import warnings
from collections.abc import Iterator, Sequence

import onnx
import torch
from torch import Tensor, nn

_REGISTRY_LOGGER = "torch.onnx._internal.exporter._registration"


class OnnxExportError(RuntimeError):
    """The ONNX file cannot be written or does not compute what the module does; the message says why."""


def to_onnx(module: nn.Module, images: Tensor, outputs: Sequence[str]) -> onnx.ModelProto:
    """The module in eval mode as an ONNX model: input `images` with a dynamic first dimension, named outputs.

    images: an example with a batch of at least 2, since torch.export takes a size of 1 for a constant.
    Batch norm is folded into the convolutions; raises OnnxExportError if that did not happen. The exporter's
    notes on each node are left out: they hold paths of this machine.
    """
    if images.shape[0] < 2:
        raise ValueError(f"images must be a batch of at least 2, got the shape {list(images.shape)}")
    with _quiet_exporter(), torch.no_grad():
        program = torch.onnx.export(
            module,
            (images,),
            input_names=["images"],
            output_names=list(outputs),
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    model: onnx.ModelProto = program.model_proto
    _drop_notes(model.graph)
    unfolded = sum(node.op_type == "BatchNormalization" for node in model.graph.node)
    if unfolded:
        raise OnnxExportError(
            f"{unfolded} batch norms are not folded into their convolutions; is the module in eval mode, and "
            "onnxscript up to date?"
        )
    return model


def _drop_notes(graph: onnx.GraphProto) -> None:
    for noted in (graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        del noted.metadata_props[:]


@contextlib.contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Silences what the exporter says of torch and torchvision rather than of the module. Not thread-safe, as
    Python's warning filters are shared by all threads."""
    logger = logging.getLogger(_REGISTRY_LOGGER)
    logger.addFilter(_is_about_the_module)
    try:
        with warnings.catch_warnings():
            # torch 2.11 to 2.13 use a class of their own that they have deprecated.
            warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)`", FutureWarning)
            yield
    finally:
        logger.removeFilter(_is_about_the_module)


def _is_about_the_module(record: logging.LogRecord) -> bool:
    # Every export without torchvision warns that torchvision's ops cannot be exported.
    return not record.getMessage().startswith("torchvision is not installed")
