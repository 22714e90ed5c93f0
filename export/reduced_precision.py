"""Convolutions and linear layers in float16 or bfloat16, within a frozen TorchScript module."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

# Input, weight, bias: the first three arguments of each.
_PRODUCTS = frozenset(
    f"aten::{name}"
    for name in (
        *("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
        *("_convolution", "linear"),
    )
)
# Their parameters stay as they are, and their sums need float32.
_NORMS = frozenset(f"aten::{name}" for name in ("batch_norm", "group_norm", "instance_norm", "layer_norm"))


def reduce_products(module: torch.jit.ScriptModule, methods: Sequence[str], dtype: torch.dtype) -> None:
    """Converts, in place, the parameters of convolutions and linear layers, and what goes into them.

    module: frozen, so that its parameters are constants and batch norms were folded in float32, and not
    called yet. methods: whose code is changed. Results stay in `dtype` until the code converts them, or a
    normalisation does: the code must convert what leaves the network, `boxes.float()`.
    """
    converted: dict[tuple[int, tuple[int, ...]], Tensor] = {}

    def convert(value: Tensor) -> Tensor:
        """The same tensor for the same parameter: all methods of the file share it."""
        return converted.setdefault((value.data_ptr(), tuple(value.shape)), value.to(dtype))

    for method in methods:
        graph = getattr(module, method).graph
        for node in list(_nodes(graph)):
            inputs = list(node.inputs())
            if node.kind() in _NORMS:
                _cast_input(graph, node, inputs[0], torch.float32)
            elif node.kind() in _PRODUCTS and _is_float32(inputs[1].toIValue()):
                _cast_input(graph, node, inputs[0], dtype)
                for position in (1, 2):
                    if _is_float32(inputs[position].toIValue()):
                        value = convert(inputs[position].toIValue())
                        node.replaceInput(position, graph.insertConstant(value))
        torch._C._jit_pass_dce(graph)
        torch._C._jit_pass_lint(graph)


def _nodes(block: Any) -> Iterator[Any]:
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _nodes(inner)


def _is_float32(value: object) -> bool:
    return isinstance(value, Tensor) and value.dtype == torch.float32


def _cast_input(graph: Any, node: Any, value: Any, dtype: torch.dtype) -> None:
    """Puts `value.to(dtype)` before the node, in place of its first input."""
    graph.setInsertPoint(node)
    number = graph.insertConstant(dtype)
    # aten::to(Tensor self, ScalarType dtype, bool non_blocking, bool copy, MemoryFormat? memory_format)
    arguments = [
        value,
        number,
        graph.insertConstant(False),
        graph.insertConstant(False),
        graph.insertConstant(None),
    ]
    cast = graph.create("aten::to", arguments, 1)
    cast.insertBefore(node)
    node.replaceInput(0, cast.output())
