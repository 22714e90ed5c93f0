"""The one place that talks to TorchScript's compiler."""

import contextlib
import copy
import warnings
from collections.abc import Iterator, Sequence

import torch
from torch import nn

# Operators of torch itself; whatever lies outside these namespaces must come from a library.
_BUILTIN_NAMESPACES = ("aten", "prim")


@contextlib.contextmanager
def quiet_torchscript() -> Iterator[None]:
    """Silences the deprecation warning that torch 2.10 and later give for every call into torch.jit.

    Lensbox uses TorchScript knowingly: C++ programs without Python load it. Not thread-safe, as Python's
    warning filters are shared by all threads: load artifacts before threads are started, or in one of them.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated", DeprecationWarning)
        yield


def script_and_freeze(module: nn.Module, methods: Sequence[str]) -> torch.jit.ScriptModule:
    """Compiles a copy of the module in eval mode, with batch norm folded into the convolutions.

    methods: the methods to keep besides `forward`; all others are dropped. The result is portable: unlike
    `torch.jit.optimize_for_inference` it holds no CPU-only packed weights and can be moved to CUDA.
    """
    # Channels last is the layout that oneDNN and cuDNN compute in; in the other one they reorder every input
    # (measured on a 2-core AVX-512 machine: 2.8 instead of 4.9 ms an image with one thread).
    module = copy.deepcopy(module).eval()
    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # (torch's stub lacks this form)
    with quiet_torchscript():
        frozen = torch.jit.freeze(torch.jit.script(module), preserved_attrs=list(methods))
    assert isinstance(frozen, torch.jit.ScriptModule)
    return frozen


def custom_op_schemas(module: torch.jit.ScriptModule, methods: Sequence[str]) -> list[str]:
    """The schemas of the operators in these methods' graphs that are not torch's own, sorted."""
    schemas: set[str] = set()
    for method in methods:
        schemas.update(_custom_ops_of(getattr(module, method).inlined_graph))
    return sorted(schemas)


def registered_schemas(op_name: str) -> "list[torch._C.FunctionSchema]":
    """The schemas of every overload that this process knows of an operator such as 'lensbox::giou'."""
    return list(torch._C._jit_get_schemas_for_operator(op_name))


def schema_accepts(schema: "torch._C.FunctionSchema", wanted: str) -> bool:
    """Whether a call written for the schema `wanted` is valid for `schema`: it may have more defaults."""
    parsed = torch._C.parse_schema(wanted)
    return bool(schema.is_backward_compatible_with(parsed))  # type: ignore[attr-defined]  # (not in the stub)


def _custom_ops_of(block: "torch._C.Graph | torch._C.Block") -> Iterator[str]:
    for node in block.nodes():
        if node.kind().split("::")[0] not in _BUILTIN_NAMESPACES:
            yield node.schema()
        for inner in node.blocks():
            yield from _custom_ops_of(inner)
