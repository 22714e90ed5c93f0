"""The one place that talks to torch's ONNX exporter."""

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence

import onnx
import torch
from torch import Tensor, nn

from lensbox.common.errors import ArtifactError
from lensbox.export.graph_tracer import BATCH, innermost_reason, traced_detect
from lensbox.runtime.formats.program import quiet_export

OPSET = 18

_REGISTRY_LOGGER = "torch.onnx._internal.exporter._registration"
# Of these the exporter knows what they mean, or says of which it does not.
_KNOWN_NAMESPACES = ("aten", "prims", "prim", "torchvision", "lensbox_onnx", "_operator", "math")


class OnnxExportError(ArtifactError):
    """The ONNX file cannot be written or does not compute what the module does; the message says why."""


class UnsupportedByOnnxError(OnnxExportError):
    """ONNX cannot express the detector, however it is exported."""


def to_onnx(module: nn.Module, images: Tensor, outputs: Sequence[str]) -> onnx.ModelProto:
    """A network in eval mode as an ONNX model: input `images` with a dynamic first dimension, named outputs.

    images: an example with a batch of at least 2, since torch.export takes a size of 1 for a constant.
    Batch norm is folded into the convolutions; raises OnnxExportError if that did not happen. The exporter's
    notes on each node are left out: they hold paths of this machine.
    """
    model = graph_to_onnx(module, images, {}, outputs)
    unfolded = sum(node.op_type == "BatchNormalization" for node in model.graph.node)
    if unfolded:
        raise OnnxExportError(
            f"{unfolded} batch norms are not folded into their convolutions; is the module in eval mode, and "
            "onnxscript up to date?"
        )
    return model


def graph_to_onnx(
    module: nn.Module, images: Tensor, scalars: Mapping[str, float], outputs: Sequence[str]
) -> onnx.ModelProto:
    """As `to_onnx`, of any module, with float32 inputs of no dimension behind the images.

    scalars: by name, with an example. Raises OnnxExportError, naming operator or line, if there is no such
    graph.
    """
    from lensbox.export.onnx_nms import TRANSLATIONS

    thresholds = tuple(torch.tensor(value, dtype=torch.float32) for value in scalars.values())
    with _quiet_exporter(), torch.no_grad():
        try:
            program = traced_detect(module, images, thresholds)
        except ArtifactError as error:
            raise UnsupportedByOnnxError(str(error)) from error
        _refuse_unknown_operators(program)
        try:
            exported = torch.onnx.export(
                program,
                input_names=["images", *scalars],
                output_names=list(outputs),
                opset_version=OPSET,
                custom_translation_table=TRANSLATIONS,
                dynamo=True,
                verbose=False,
            )
        except Exception as error:  # the exporter has many kinds, and wraps them in long reports
            reason = innermost_reason(error)
            raise UnsupportedByOnnxError(f"ONNX has no translation of the detector: {reason}") from error
    assert exported is not None
    model: onnx.ModelProto = exported.model_proto
    _drop_notes(model.graph)
    _name_batch(model)
    return model


def _refuse_unknown_operators(program: torch.export.ExportedProgram) -> None:
    unknown = set()
    for graph_module in program.graph_module.modules():
        for node in getattr(graph_module, "graph", torch.fx.Graph()).nodes:
            operator = node.target
            if isinstance(operator, torch._ops.OpOverload) and operator.namespace not in _KNOWN_NAMESPACES:
                unknown.add(operator._schema.name)
    if unknown:
        raise UnsupportedByOnnxError(
            f"ONNX has no translation of the operators {', '.join(sorted(unknown))}; of Lensbox's own, "
            "lensbox::padded_nms has one"
        )


def _drop_notes(graph: onnx.GraphProto) -> None:
    for noted in (graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        del noted.metadata_props[:]


def _name_batch(model: onnx.ModelProto) -> None:
    """Gives the batch its name everywhere: torch has one of its own for it, such as 's77'."""
    own = model.graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param == own:
                size.dim_param = BATCH


@contextlib.contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Silences what the exporter says of torch and torchvision rather than of the module. Not thread-safe, as
    Python's warning filters are shared by all threads."""
    logger = logging.getLogger(_REGISTRY_LOGGER)
    logger.addFilter(_is_about_the_module)
    try:
        with quiet_export():
            yield
    finally:
        logger.removeFilter(_is_about_the_module)


def _is_about_the_module(record: logging.LogRecord) -> bool:
    # Every export without torchvision warns that torchvision's ops cannot be exported.
    return not record.getMessage().startswith("torchvision is not installed")
