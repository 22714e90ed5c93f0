"""ONNX files: `detect` in standard operators, for any ONNX runtime."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import onnx
import torch

from lensbox.common.errors import ArtifactError
from lensbox.export.detector.graph import (
    BATCH,
    NMS,
    custom_ops,
    innermost_reason,
    quiet_export,
    trace_detect,
    without_records,
)
from lensbox.export.detector.wrapper import omitted_methods
from lensbox.export.formats.onnx_nms import nms_in_onnx
from lensbox.export.plan import Built, ExportPlan
from lensbox.runtime.file.archive import INPUTS, MAX_FILE_SIZE
from lensbox.runtime.file.metadata import METADATA_FILE, ArtifactMetadata
from lensbox.runtime.file.seal import sealed_onnx

OPSET = 18

_REGISTRY_LOGGER = "torch.onnx._internal.exporter._registration"


def build(plan: ExportPlan) -> Built:
    """Translate the detector's graph to ONNX.

    Inputs: `images`, uint8 [batch, c, h, w], `score_threshold` and `iou_threshold`, float32 []. Outputs: the
    outputs of `detect` by name. Raise ArtifactError if ONNX cannot express the detector, or if the
    detector's `preprocess` or `restore` differs from Lensbox's.
    """
    omitted = omitted_methods(plan.network, "an ONNX file")
    program = trace_detect(plan.network, plan.thresholds, torch.device("cpu"), plan.batch)
    translations = plan.network.onnx_translations() if hasattr(plan.network, "onnx_translations") else {}
    model = translated(program, INPUTS, plan.outputs, translations)
    return Built(partial(_pack, model), omitted, batch=plan.batch)


def _pack(model: onnx.ModelProto, metadata: ArtifactMetadata) -> bytes:
    _describe(model, metadata)
    if model.ByteSize() > MAX_FILE_SIZE:
        raise ArtifactError(f"an ONNX file must have at most {MAX_FILE_SIZE} bytes, got {model.ByteSize()}")
    content = sealed_onnx(model.SerializeToString())
    try:
        onnx.checker.check_model(content, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ArtifactError(f"ONNX cannot hold the detector's network: {innermost_reason(error)}") from error
    return content


def translated(
    program: torch.export.ExportedProgram,
    inputs: Sequence[str],
    outputs: Sequence[str],
    translations: Mapping[Any, Callable[..., Any]] | None = None,
) -> onnx.ModelProto:
    """Return the ONNX model of a graph, without the notes on nodes, which hold paths of this machine.

    translations: further operators, see `OptionalMethods.onnx_translations`.
    """
    table = {NMS: nms_in_onnx, **(translations or {})}
    _refuse_unknown_operators(program, {operator.name() for operator in table})
    try:
        # Every export without torchvision warns that torchvision's ops cannot be exported.
        torchvision = without_records(_REGISTRY_LOGGER, "torchvision is not installed")
        with quiet_export(), torchvision, torch.no_grad():
            exported = torch.onnx.export(
                program,
                input_names=list(inputs),
                output_names=list(outputs),
                # The name of the batch, unless it is fixed: the program has names such as 's77'.
                dynamic_shapes=({0: BATCH}, *[None] * (len(inputs) - 1)),
                opset_version=OPSET,
                custom_translation_table=table,
                dynamo=True,
                verbose=False,
            )
    except Exception as error:  # many kinds of errors, in long reports
        reason = innermost_reason(error)
        raise ArtifactError(f"ONNX has no translation of the detector: {reason}") from error
    assert exported is not None
    model: onnx.ModelProto = exported.model_proto
    graph = model.graph
    for noted in (graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        del noted.metadata_props[:]
    return model


def _refuse_unknown_operators(program: torch.export.ExportedProgram, known: Collection[str]) -> None:
    names = {schema.partition("(")[0] for schema in custom_ops(program.graph_module)}.difference(known)
    # The exporter translates the operators of torchvision, or names them.
    if unknown := sorted(name for name in names if not name.startswith("torchvision::")):
        raise ArtifactError(
            f"ONNX has no translation of the operators {', '.join(unknown)}; the only translated operator of "
            "Lensbox is lensbox::padded_nms. Translate your own in the detector's method onnx_translations"
        )


def _describe(model: onnx.ModelProto, metadata: ArtifactMetadata) -> None:
    description = (
        f"{metadata.name}: detect of a Lensbox detector, with non-maximum suppression. The property "
        f"{METADATA_FILE} describes how to fit images to canvases and has the default thresholds."
    )
    model.graph.name = metadata.name
    model.doc_string = description
    texts = {"images": {**metadata.input["canvas"], "unit": "gray levels or RGB of canvases"}}
    texts |= {name: {"unit": "0 to 1"} for name in ("score_threshold", "iou_threshold")}
    texts |= metadata.output
    for value in (*model.graph.input, *model.graph.output):
        text = texts.get(value.name, {})
        value.doc_string = ", ".join(f"{key} {entry}" for key, entry in text.items())
    properties = {
        METADATA_FILE: metadata.to_json(),
        "description": description,  # repeated, as some viewers show only properties
        "lensbox_version": metadata.lensbox_version,
        "torch_version": metadata.torch_version,
        "weights_sha256": metadata.weights_sha256,
    }
    onnx.helper.set_model_props(model, properties)
