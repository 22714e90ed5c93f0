"""The one place that talks to TorchScript's compiler."""

import copy
from collections.abc import Iterator, Sequence

import torch
from torch import nn

from lensbox.runtime.torchscript import quiet_torchscript

# Operators of torch itself; whatever lies outside these namespaces must come from a library.
_BUILTIN_NAMESPACES = ("aten", "prim")


def script_and_freeze(
    module: nn.Module, methods: Sequence[str], forward: str | None = None
) -> torch.jit.ScriptModule:
    """Compiles a copy of the module in eval mode, with batch norm folded into the convolutions.

    methods: the methods to keep besides `forward`; all others are dropped. forward: source of that method for
    a module that has none. The result is portable: unlike
    `torch.jit.optimize_for_inference` it holds no CPU-only packed weights and can be moved to CUDA.
    """
    # Channels last is the layout that oneDNN and cuDNN compute in; in the other one they reorder every input
    # (measured on a 2-core AVX-512 machine: 2.8 instead of 4.9 ms an image with one thread).
    module = copy.deepcopy(module).eval()
    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # (torch's stub lacks this form)
    with quiet_torchscript():
        frozen = torch.jit.freeze(_script(module, forward), preserved_attrs=list(methods))
    assert isinstance(frozen, torch.jit.ScriptModule)
    return frozen


def _script(module: nn.Module, forward: str | None) -> torch.jit.ScriptModule:
    """`torch.jit.script`, of which neither a failure nor the method `forward` leaves anything behind.

    torch keeps the types of modules to share them with later ones, also those whose compilation failed
    half-way; the next module of such a type would fail with "Can't redefine method".
    """
    try:
        if forward is not None:
            _forget_types()
        scripted: torch.jit.ScriptModule = torch.jit.script(module)
        if forward is not None:
            scripted.define(forward)
            _forget_types()
    except Exception:
        _forget_types()
        raise
    return scripted


def _forget_types() -> None:
    torch.jit._recursive.concrete_type_store = torch.jit._recursive.ConcreteTypeStore()


def custom_op_schemas(module: torch.jit.ScriptModule, methods: Sequence[str]) -> list[str]:
    """The schemas of the operators in these methods' graphs that are not torch's own, sorted."""
    schemas: set[str] = set()
    for method in methods:
        schemas.update(_custom_ops_of(getattr(module, method).inlined_graph))
    return sorted(schemas)


def _custom_ops_of(block: "torch._C.Graph | torch._C.Block") -> Iterator[str]:
    for node in block.nodes():
        if node.kind().split("::")[0] not in _BUILTIN_NAMESPACES:
            yield node.schema()
        for inner in node.blocks():
            yield from _custom_ops_of(inner)
