"""Exported programs: `detect` and the loss as graphs of torch.export, for any machine."""

import io
import logging
import operator
import re
import traceback
import warnings
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, fx
from torch.export import Dim, ExportedProgram

from lensbox.common.errors import ArtifactError
from lensbox.export.detector.copies import in_precision
from lensbox.export.detector.graph import (
    FunctionMode,
    custom_ops,
    innermost_reason,
    quiet_export,
    trace,
    trace_detect,
)
from lensbox.export.detector.passes import fold_batch_norms
from lensbox.export.detector.wrapper import needed_ops, omitted_methods
from lensbox.export.plan import Built, ExportPlan
from lensbox.model import Detector
from lensbox.model.user_errors import is_users
from lensbox.runtime.file.archive import LOSS, MODEL
from lensbox.runtime.file.metadata import METADATA_FILE, ArtifactMetadata
from lensbox.runtime.file.seal import sealed_zip
from lensbox.runtime.formats.program_operators import check_arguments, operator_name, require_allowed
from lensbox.runtime.formats.program_schema import GraphError

_logger = logging.getLogger(__name__)

# Entries of nodes that hold lines and paths of this machine.
_NOTES = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "from_node")


def build(plan: ExportPlan) -> Built:
    """Make the graphs of `detect` and of the loss with its gradient.

    Raise ArtifactError if torch.export cannot make the graph of `detect`, if the graph calls an operator
    that a program must not call, or if the detector's `preprocess` or `restore` differs from Lensbox's. A
    loss of the detector's own without such a graph is left out.
    """
    own = omitted_methods(plan.network, "a program")
    graphs = {MODEL: _detect_graph(plan)}
    omitted: list[str] = []
    try:
        graphs[LOSS] = _loss_graph(plan.network)
    except Exception as error:  # whatever the user's code and the tracer raise
        if not own:
            raise
        _logger.warning(
            "the file holds no loss, as torch.export cannot make its graph: %s", innermost_reason(error)
        )
        omitted = own
    for program in graphs.values():
        _strip(program)
    called = [schema for graph in graphs.values() for schema in custom_ops(graph.graph_module)]
    return Built(
        pack=lambda metadata: _pack(graphs, metadata),
        omitted=omitted,
        ops=needed_ops(called, omitted or own),
        devices=("cpu", "cuda"),
        batch=plan.batch,
    )


def _strip(program: ExportedProgram) -> None:
    """Take out what a run does not need: examples, paths of this machine, and the device of the trace."""
    program.example_inputs = None
    for node in list(program.graph.nodes):
        for note in _NOTES:
            node.meta.pop(note, None)
        if node.target is torch.ops.aten._assert_tensor_metadata.default:
            program.graph.erase_node(node)
    program.graph_module.recompile()


def require_operators(module: fx.GraphModule, call: Callable[[], object]) -> None:
    """Raise ArtifactError, with the line of the model, if the graph calls what a program must not call.

    Operators of the user's own libraries pass: runtimes take them from the libraries that their callers name.
    call: runs what was traced.
    """
    for node in module.graph.nodes:
        if node.op != "call_function" or node.target is operator.getitem:
            continue
        try:
            _require_operator(node)
        except GraphError as error:
            function = getattr(node.target, "_schema", node.target)
            name = getattr(function, "name", str(function)).rpartition("::")[2]
            raise ArtifactError(f"{error}{_line_of(node) or _line_of_call(call, name)}") from error


def _line_of(node: fx.Node) -> str:
    """Return ' (file:line)' of the model, from what torch.export noted: the innermost forward."""
    places = re.findall(r'File "(.+?)", line (\d+)', str(node.meta.get("stack_trace") or ""))
    users = [f" ({file}:{line})" for file, line in places if is_users(file)]
    return users[-1] if users else ""


def _line_of_call(call: Callable[[], object], name: str) -> str:
    """Return ' (file:line)' of the first call of a function of torch; "" if it is not called by this name."""
    places: list[str] = []

    def note(function: Any, args: Any, kwargs: Any) -> Any:
        if getattr(function, "__name__", "") == name:
            users = [frame for frame in traceback.extract_stack() if is_users(frame.filename)]
            places.extend(f" ({frame.filename}:{frame.lineno})" for frame in users[-1:])
        return function(*args, **kwargs)

    with torch.no_grad(), FunctionMode(note):
        call()
    return places[0] if places else ""


def _require_operator(node: fx.Node) -> None:
    target: Any = node.target
    if not isinstance(target, torch._ops.OpOverload):
        module = target.__module__ if target.__module__ in ("math", "_operator") else "torch"
        require_allowed(f"{module}.{target.__name__}")
        return
    name = operator_name(f"torch.ops.{target}")
    require_allowed(name)
    every = {argument.name: argument.default_value for argument in target._schema.arguments}
    check_arguments(name, {**every, **dict(zip(every, node.args, strict=False)), **node.kwargs})


def _detect_graph(plan: ExportPlan) -> ExportedProgram:
    """Return the graph of `detect` with folded batch norms and, if the detector allows it, weights in
    channels-last layout, in which oneDNN and cuDNN compute."""
    network = in_precision(plan.network, plan.options.dtype, plan.batch)
    cpu = torch.device("cpu")
    program = trace_detect(network, plan.thresholds, cpu, plan.batch, torch.float64)
    canvases: Any = program.example_inputs[0][0]
    require_operators(program.graph_module, lambda: cast(Any, network).detect(canvases, *plan.thresholds))
    module = program.module(check_guards=False)  # a copy for the passes
    assert isinstance(module, fx.GraphModule)
    fold_batch_norms(module)

    def traced(layout: torch.memory_format) -> ExportedProgram:
        module.to(memory_format=layout)  # type: ignore[call-overload]  # (torch's stub lacks this form)
        return trace(module, canvases, plan.thresholds, plan.batch is None, torch.float64)

    try:
        return traced(torch.channels_last)
    except ArtifactError:  # the code takes views of results, for example
        return traced(torch.contiguous_format)


def _loss_graph(detector: Detector) -> ExportedProgram:
    """Return the graph of loss and gradient. Inputs: float64 [B, N, 4] twice, of any B and N."""
    from torch.fx.experimental.proxy_tensor import make_fx

    loss = cast(Any, detector).loss if hasattr(detector, "loss") else torch.ops.lensbox.masked_giou_loss

    def both(predictions: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        with torch.enable_grad():
            leaf = predictions.detach().requires_grad_()
            value = loss(leaf, targets)
            gradients = torch.autograd.grad(value.sum(), leaf) if value.requires_grad else ()
        return value.detach(), *gradients

    boxes = torch.tensor([0.0, 1.0, 2.0, 4.0], dtype=torch.float64).repeat(2, 3, 1)
    examples = boxes, boxes + 1.0
    graph = make_fx(both, tracing_mode="symbolic")(*examples)
    require_operators(graph, lambda: both(*examples))
    sizes = {0: Dim("batch"), 1: Dim("boxes")}
    with quiet_export():
        return torch.export.export(graph, examples, dynamic_shapes=(sizes, sizes), strict=False)


def _pack(graphs: dict[str, ExportedProgram], metadata: ArtifactMetadata) -> bytes:
    """Return the sealed archive."""
    from torch.export.pt2_archive._package import package_pt2

    content = io.BytesIO()
    with quiet_export():
        # torch looks for weights that share memory, and knows contiguous ones only.
        warnings.filterwarnings("ignore", "No complete tensor found in the group", UserWarning)
        package_pt2(content, exported_programs=graphs, extra_files={METADATA_FILE: metadata.to_json()})
    return sealed_zip(content.getvalue())
