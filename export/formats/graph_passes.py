"""Graph passes before compilation: fold batch norms, reduce precision, expand convolutions, choose layouts.

The graphs come from `trace_detect(...).module()`: ATen operators with parameters as attributes.
"""

import itertools
from functools import reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.nn.functional import pad
from torch.nn.utils.fusion import fuse_conv_bn_weights

_aten = torch.ops.aten

_CONVOLUTIONS = frozenset(
    overload
    for name in ("conv1d", "conv2d", "conv3d")
    for overload in (getattr(_aten, name).default, getattr(_aten, name).padding)
)
_TRANSPOSED = frozenset(
    (_aten.conv_transpose1d.default, _aten.conv_transpose2d.input, _aten.conv_transpose3d.input)
)
_PRODUCTS = _CONVOLUTIONS | _TRANSPOSED | {_aten.linear.default}  # input, weight, bias
_CONV2D_DEFAULTS: list[Any] = [[1, 1], [0, 0], [1, 1], 1]  # stride, padding, dilation, groups
_MOST_TAPS = 25  # 5 x 5; the code of a sum grows with its length
_NORMS = frozenset((_aten.batch_norm.default, _aten.group_norm.default, _aten.instance_norm.default)) | {
    _aten.layer_norm.default
}


def fold_batch_norms(graph_module: fx.GraphModule) -> int:
    """Fold batch norms into the preceding convolutions, in place, in float32; return their number."""
    folded = 0
    for norm in list(graph_module.graph.nodes):
        if norm.target is not _aten.batch_norm.default:
            continue
        product = norm.args[0]
        if product.target not in _CONVOLUTIONS or len(product.users) > 1:
            continue
        convolution = _Product(graph_module, product)
        weight, bias, mean, variance = (_value(graph_module, node) for node in norm.args[1:5])
        trains, _, eps = norm.args[5:8]
        if convolution.weight is None or mean is None or variance is None or trains:
            continue
        if convolution.computes_bias or any(map(_is_computed, norm.args[1:3], (weight, bias))):
            continue
        fused = fuse_conv_bn_weights(
            nn.Parameter(convolution.weight, False), convolution.bias, mean, variance, eps, weight, bias
        )
        convolution.replace(*(parameter.detach() for parameter in fused))
        norm.replace_all_uses_with(product)
        graph_module.graph.erase_node(norm)
        folded += 1
    _finish(graph_module)
    return folded


def reduce_products(graph_module: fx.GraphModule, dtype: torch.dtype) -> None:
    """Convert the parameters and inputs of convolutions and linear layers to `dtype`, in place.

    Results stay in `dtype` until the code or a normalisation converts them.
    `torchscript.reduce_products` does the same for TorchScript.
    """
    graph = graph_module.graph
    for node in list(graph.nodes):
        if node.target in _NORMS:
            _cast_input(graph, node, torch.float32)
        elif node.target in _PRODUCTS:
            product = _Product(graph_module, node)
            weight = product.weight
            if weight is not None and weight.dtype == torch.float32 and not product.computes_bias:
                _cast_input(graph, node, dtype)
                product.replace(*(None if value is None else value.to(dtype) for value in product.parameters))
    _drop_dtype_checks(graph_module)


def lay_out(graph_module: fx.GraphModule, layout: torch.memory_format) -> None:
    """Set the memory layout of the weights of two-dimensional convolutions, in place."""
    for node in list(graph_module.graph.nodes):
        if node.target in (_aten.conv2d.default, _aten.conv2d.padding):
            product = _Product(graph_module, node)
            if product.weight is not None:
                product.replace(product.weight.contiguous(memory_format=layout), product.bias)
    _finish(graph_module)


def expand_depthwise(graph_module: fx.GraphModule) -> int:
    """Replace depthwise convolutions by sums of shifted products, in place; return their number.

    The compiler fuses a sum with the activations beside it. cuDNN would compile a kernel for each depthwise
    convolution in the first call with each batch size, which takes 2 s per batch size with `FaceDetector`
    (NVIDIA/cudnn-frontend#1066; seen with cuDNN 9.19). Replaced are two-dimensional convolutions with one
    filter per channel, at most 25 weights per filter, and padding in numbers.
    """
    expanded = 0
    for node in list(graph_module.graph.nodes):
        if node.target is not _aten.conv2d.default:
            continue
        options: list[Any] = list(node.args[3:])
        stride, padding, dilation, groups = options + _CONV2D_DEFAULTS[len(options) :]
        convolution = _Product(graph_module, node)
        weight = convolution.weight
        if weight is None or weight.shape[:2] != (groups, 1) or weight.shape[2:].numel() > _MOST_TAPS:
            continue
        if any(len(pair) != 2 for pair in (stride, padding, dilation)):
            continue
        # Values for neighbouring channels lie side by side, as in x.
        convolution.replace(weight.permute(2, 3, 0, 1).contiguous(), None)
        node.target, node.args = _shifted_products, (*node.args[:3], stride, padding, dilation)
        expanded += 1
    _finish(graph_module)
    return expanded


def _shifted_products(
    x: Tensor, taps: Tensor, bias: Tensor | None, stride: list[int], padding: list[int], dilation: list[int]
) -> Tensor:
    """Return a depthwise convolution of x, [B, C, H, W] or [C, H, W]; sums are float32, or float64 as x.

    taps: [h, w, C, 1]. bias: [C].
    """
    dtype = torch.promote_types(x.dtype, torch.float32)
    padded = pad(x, (padding[1], padding[1], padding[0], padding[0]))
    height, width = (
        size - spread * (count - 1)
        for size, spread, count in zip(padded.shape[-2:], dilation, taps.shape[:2], strict=True)
    )
    total = torch.zeros((), dtype=dtype, device=x.device) if bias is None else bias.to(dtype)[:, None, None]
    for row, column in itertools.product(range(taps.shape[0]), range(taps.shape[1])):
        top, left = row * dilation[0], column * dilation[1]
        shifted = padded[..., top : top + height : stride[0], left : left + width : stride[1]]
        total = total + shifted.to(dtype) * taps[row, column, :, :, None].to(dtype)
    return total.to(x.dtype)


def take_double_thresholds(graph_module: fx.GraphModule) -> None:
    """Make the thresholds float64 inputs, as the runtimes pass them, in place."""
    graph = graph_module.graph
    for node in [node for node in graph.nodes if node.op == "placeholder"][1:]:
        with graph.inserting_after(node):
            single = graph.call_function(_aten.to.dtype, (node, torch.float32))
        single.meta["val"] = node.meta["val"]
        node.meta["val"] = node.meta["val"].double()  # defines how the compiled code reads the input
        node.replace_all_uses_with(single, delete_user_cb=lambda user, single=single: user is not single)
    _drop_dtype_checks(graph_module)


def _drop_dtype_checks(graph_module: fx.GraphModule) -> None:
    """Remove the tracer's checks of dtypes, in place."""
    for node in list(graph_module.graph.nodes):
        if node.target is _aten._assert_tensor_metadata.default:
            graph_module.graph.erase_node(node)
    _finish(graph_module)


class _Parameters(NamedTuple):
    weight: Tensor | None
    bias: Tensor | None


class _Product:
    """A convolution or linear layer with replaceable parameters."""

    def __init__(self, graph_module: fx.GraphModule, node: fx.Node) -> None:
        self._module, self._node = graph_module, node
        arguments = [*node.args, *(None,) * 3]
        self.parameters = _Parameters(*(_value(graph_module, argument) for argument in arguments[1:3]))
        self.computes_bias = _is_computed(arguments[2], self.parameters.bias)

    @property
    def weight(self) -> Tensor | None:
        return self.parameters.weight

    @property
    def bias(self) -> Tensor | None:
        return self.parameters.bias

    def replace(self, weight: Tensor | None, bias: Tensor | None) -> None:
        graph = self._module.graph
        arguments = [*self._node.args]
        arguments += [None] * (3 - len(arguments))
        for position, value in ((1, weight), (2, bias)):
            if value is None:
                continue
            name = f"_lensbox_{self._node.name}_{position}_{len(self._module._buffers)}"
            self._module.register_buffer(name, value)
            with graph.inserting_before(self._node):
                arguments[position] = graph.get_attr(name)
        self._node.args = tuple(arguments)


def _value(graph_module: fx.GraphModule, node: Any) -> Tensor | None:
    """Return the parameter or buffer of a node; None if the node is absent or computed."""
    if not isinstance(node, fx.Node) or node.op != "get_attr":
        return None
    value: Any = reduce(getattr, str(node.target).split("."), graph_module)
    return value.detach() if isinstance(value, Tensor) else None


def _is_computed(argument: Any, value: Tensor | None) -> bool:
    """Return whether a parameter is computed by the graph. value: the result of `_value`."""
    return argument is not None and value is None


def _cast_input(graph: fx.Graph, node: fx.Node, dtype: torch.dtype) -> None:
    with graph.inserting_before(node):
        cast = graph.call_function(_aten.to.dtype, (node.args[0], dtype))
    node.args = (cast, *node.args[1:])


def _finish(graph_module: fx.GraphModule) -> None:
    graph_module.graph.eliminate_dead_code()
    graph_module.graph.lint()
    graph_module.recompile()
