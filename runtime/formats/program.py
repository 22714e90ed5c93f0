"""Exported programs: graphs of torch.export, run operator by operator."""

import io
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.export.passes import move_to_device_pass

from lensbox.common.errors import ArtifactError
from lensbox.runtime.detect.artifact import Artifact
from lensbox.runtime.device import choose_device
from lensbox.runtime.file.archive import LOSS, MODEL, ArtifactFile
from lensbox.runtime.formats.detect_only import DetectOnlyMethods, Loss, detect_of_graph
from lensbox.runtime.op_library import require_ops


def load(file: ArtifactFile, device_name: str) -> Artifact:
    """Load a program on any device.

    Raise ArtifactError if an operator is missing or has another schema, or if torch cannot load the file;
    DeviceError.
    """
    device, metadata = choose_device(device_name), file.metadata
    require_ops(file.name, metadata.ops)
    try:
        from torch.export.pt2_archive._package import load_pt2

        with warnings.catch_warnings():
            # torch 2.11 makes read-only tensors from bytes.
            warnings.filterwarnings("ignore", "The given buffer is not writable", UserWarning)
            graphs = load_pt2(io.BytesIO(file.data)).exported_programs
        graph = run_on(graphs[MODEL], device)
        run = detect_of_graph(lambda inputs: graph(*inputs), metadata.outputs)
        loss = _loss(run_on(graphs[LOSS], device)) if "loss" in metadata.methods else None
    except Exception as error:  # torch's reader raises any type
        raise ArtifactError(
            f"{file.name} cannot be loaded on {device} by torch {torch.__version__}: {error}"
        ) from error
    return Artifact(DetectOnlyMethods(run, metadata, device, loss), metadata, device)


def run_on(program: ExportedProgram, device: torch.device) -> Callable[..., tuple[Tensor, ...]]:
    """Move a graph to a device, and return the function that runs it, with the graph's inputs and outputs.

    Inputs are not checked.
    """
    if device.type != "cpu":
        program = move_to_device_pass(program, device)
        program.graph_module.recompile()  # the pass changes the nodes, not the code that runs
    values: Mapping[str, Any] = {**program.state_dict, **program.constants}
    weights = [
        values[str(spec.target)].detach()
        for spec in program.graph_signature.input_specs
        if spec.kind is not InputKind.USER_INPUT
    ]
    graph: Callable[..., tuple[Tensor, ...]] = program.graph_module

    def run(*inputs: Tensor) -> tuple[Tensor, ...]:
        return graph(*weights, *inputs)

    return run


def _loss(run: Callable[..., tuple[Tensor, ...]]) -> Loss:
    """Return the loss, whose gradient the graph computes beside the value."""

    class GraphLoss(torch.autograd.Function):
        """The loss of the graph."""

        @staticmethod
        def forward(ctx: Any, predictions: Tensor, targets: Tensor) -> Tensor:
            batch = [boxes.double().reshape(-1, *boxes.shape[-2:]) for boxes in (predictions, targets)]
            value, *gradients = (result.to(predictions.dtype) for result in run(*batch))
            if gradients:
                ctx.save_for_backward(gradients[0].reshape(predictions.shape))
            else:
                ctx.mark_non_differentiable(value)
            return value

        @staticmethod
        def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, None]:
            (gradient,) = ctx.saved_tensors
            return outer[0] * gradient, None

    apply: Loss = GraphLoss.apply
    return apply
