"""TorchScript files: all methods of a detector, for every runtime of Lensbox."""

import copy
import io
import linecache
import logging
import platform
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from lensbox.common.errors import ArtifactError
from lensbox.common.machine import has_torchscript
from lensbox.export.detector import copies
from lensbox.export.detector.copies import REDUCED, in_precision
from lensbox.export.detector.graph import is_custom
from lensbox.export.detector.wrapper import DetectorWrapper
from lensbox.export.formats.traced import TracedDetector, replace_trace_constants
from lensbox.export.plan import Built, ExportPlan
from lensbox.model import Detector
from lensbox.model.user_errors import is_users
from lensbox.runtime.file.metadata import METADATA_FILE, METHODS, ArtifactMetadata
from lensbox.runtime.file.seal import sealed_zip
from lensbox.runtime.torchscript import quiet_torchscript

_logger = logging.getLogger(__name__)

# A line of user code in a message of the TorchScript compiler.
_PLACE = re.compile(r'^\s*File "(?P<file>.+)", line (?P<line>[0-9]+)', re.MULTILINE)
_MOST_PLACES = 4
_MOST_CHARACTERS = 500


def build(plan: ExportPlan) -> Built:
    """Compile the detector, in float16 or bfloat16 if the plan requires reduced precision.

    Raise ArtifactError on Python 3.14 and later, where torch does not support TorchScript, if TorchScript
    cannot compile the detector, if `detect` fails in this precision, or if its results are not float32.
    """
    if not has_torchscript():
        raise ArtifactError(
            f"TorchScript needs Python 3.13 or older, got Python {platform.python_version()}: torch does not "
            "support TorchScript there. Use an older Python, or --format program, aoti or onnx"
        )
    network, dtype = plan.network, plan.options.dtype
    if dtype in REDUCED:
        network = in_precision(network, dtype, max(plan.options.batches, default=None))
    options, traced = plan.options, partial(_traced, network, plan)
    if options.trace or options.batches:
        return traced()
    try:
        module = script_and_freeze(DetectorWrapper(network))
    except Exception as error:  # many kinds of errors without a common base
        reason = _scripting_reason(error)
        if options.trace is None:
            try:
                built = traced()
            except ArtifactError as also:
                reason = f"{reason}\n{also}"
            else:
                _logger.warning("the detector is traced, as TorchScript cannot compile it: %s", reason)
                return built
        raise ArtifactError(
            f"the detector cannot be exported, as TorchScript cannot compile it: {reason}"
        ) from error
    return replace(_built(module), otherwise=traced if options.trace is None else None)


def _built(module: torch.jit.ScriptModule) -> Built:
    graphs = [getattr(module, name).inlined_graph for name in METHODS]
    return Built(
        pack=partial(_pack, module),
        ops=tuple(sorted({schema for graph in graphs for schema in _custom_ops_of(graph)})),
        devices=("cpu", "cuda"),
    )


def _pack(module: torch.jit.ScriptModule, metadata: ArtifactMetadata) -> bytes:
    content = io.BytesIO()  # not a file: torch's writer aborts the process if the disk is full
    with quiet_torchscript():
        torch.jit.save(module, content, _extra_files={METADATA_FILE: metadata.to_json()})
    return sealed_zip(content.getvalue())


def _scripting_reason(error: Exception) -> str:
    """Return the compiler's reason, then the user's lines: the failing line and its callers.

    error: raised by `torch.jit.script` for the detector or a module around the detector.
    """
    text = str(error).strip()
    first = _PLACE.search(text)
    if first and first["file"] == copies.__file__:
        return "hooks convert the inputs of modules that stay in float32; TorchScript has no such hooks"
    reason = " ".join((text[: first.start()] if first else text).split()).rstrip(":. ")
    if len(reason) > _MOST_CHARACTERS:
        reason = f"{reason[:_MOST_CHARACTERS]}..."
    places = ((match["file"], int(match["line"])) for match in _PLACE.finditer(text))
    lines = [
        f"{file}:{line}: {linecache.getline(file, line).strip()}"
        for file, line in dict.fromkeys(places)
        if is_users(file)
    ]
    return "\n  ".join([reason or type(error).__name__, *lines[:_MOST_PLACES]])


def _traced(detector: Detector, plan: ExportPlan) -> Built:
    """Trace `detect` and compile Lensbox's other methods. Raise ArtifactError."""
    _logger.info("tracing the detector")
    traced: Any = TracedDetector(detector, plan.thresholds, plan.options.batches)
    module = script_and_freeze(DetectorWrapper(traced))
    replace_trace_constants(module.detect.graph)
    return _built(module)


def script_and_freeze(wrapper: DetectorWrapper) -> torch.jit.ScriptModule:
    """Compile a copy of the wrapper in eval mode, with batch norm folded into the convolutions.

    The result has the methods of an artifact alone, and can be moved to CUDA: unlike the result of
    `torch.jit.optimize_for_inference`, it holds no CPU-only packed weights.
    """
    # oneDNN and cuDNN compute in channels-last layout and would otherwise reorder every input (2.8 instead of
    # 4.9 ms an image on a 2-core AVX-512 machine with one thread).
    module = copy.deepcopy(wrapper).eval()
    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # (torch's stub lacks this form)
    with quiet_torchscript():
        frozen = torch.jit.freeze(_script(module), preserved_attrs=list(METHODS))
    assert isinstance(frozen, torch.jit.ScriptModule)
    return frozen


def _script(module: nn.Module) -> torch.jit.ScriptModule:
    """Call `torch.jit.script`, and forget the types of modules that it cached before it failed.

    The next module of such a type would fail with "Can't redefine method".
    """
    try:
        scripted: torch.jit.ScriptModule = torch.jit.script(module)
    except Exception:
        torch.jit._recursive.concrete_type_store = torch.jit._recursive.ConcreteTypeStore()
        raise
    return scripted


def _custom_ops_of(block: "torch._C.Graph | torch._C.Block") -> Iterator[str]:
    """Yield the schemas of the operators that are not torch's own."""
    for node in block.nodes():
        if is_custom(node.kind().split("::")[0]):
            yield node.schema()
        for inner in node.blocks():
            yield from _custom_ops_of(inner)
