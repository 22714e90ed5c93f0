"""Passes over modules and graphs: fold batch norms, expand depthwise convolutions, choose layouts.

The graphs come from `trace_detect(...).module()`: ATen operators with parameters as attributes.
"""

import itertools
from functools import reduce
from typing import Any, cast

import torch
from torch import Tensor, fx, nn
from torch.nn.functional import pad
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_conv_bn_weights

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_aten = torch.ops.aten

_CONV2D_DEFAULTS: list[Any] = [[1, 1], [0, 0], [1, 1], 1]  # stride, padding, dilation, groups
_MOST_TAPS = 25  # 5 x 5; the code of a sum grows with its length


def lay_out(graph_module: fx.GraphModule, layout: torch.memory_format) -> None:
    """Set the memory layout of all values with four dimensions: weights of two-dimensional convolutions."""
    for value in (*graph_module.parameters(), *graph_module.buffers()):
        if value.dim() == 4:
            value.data = value.data.contiguous(memory_format=layout)


def fold_modules(network: nn.Module) -> None:
    """Fold each batch norm into the convolution before it in an `nn.Sequential`, in float32, in place.

    For networks that get another dtype, whose weights would be rounded twice if they were folded later.
    `fold_batch_norms` and the compilers fold the other batch norms in graphs.
    """
    for parent in network.modules():
        if not isinstance(parent, nn.Sequential):
            continue
        for (first, layer), (second, norm) in itertools.pairwise(list(parent.named_children())):
            if type(layer) in CONVOLUTIONS and type(norm) in _BATCH_NORMS and norm.running_mean is not None:
                setattr(parent, first, fuse_conv_bn_eval(cast(Any, layer), cast(Any, norm)))
                setattr(parent, second, nn.Identity())


def fold_batch_norms(graph_module: fx.GraphModule) -> None:
    """Fold each batch norm in evaluation mode into the convolution before it, in place.

    Folded are two-dimensional convolutions whose result nothing else uses.
    """
    for norm in list(graph_module.graph.nodes):
        if norm.target is not _aten.batch_norm.default or norm.args[5]:
            continue
        convolution = norm.args[0]
        if (
            convolution.target not in (_aten.conv2d.default, _aten.conv2d.padding)
            or len(convolution.users) > 1
        ):
            continue
        weight = _value(graph_module, convolution.args[1])
        has_bias = len(convolution.args) > 2 and convolution.args[2] is not None
        bias = _value(graph_module, convolution.args[2]) if has_bias else None
        scale, shift, mean, variance = (_value(graph_module, node) for node in norm.args[1:5])
        if weight is None or mean is None or variance is None or (has_bias and bias is None):
            continue
        folded = fuse_conv_bn_weights(weight, bias, mean, variance, norm.args[7], scale, shift)
        with graph_module.graph.inserting_before(convolution):
            values = [_buffer(graph_module, norm, value.detach()) for value in folded]
        convolution.args = (convolution.args[0], *values, *convolution.args[3:])
        norm.replace_all_uses_with(convolution)
    _finish(graph_module)
    graph_module.delete_all_unused_submodules()


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
        weight = _value(graph_module, node.args[1])
        if weight is None or weight.shape[:2] != (groups, 1) or weight.shape[2:].numel() > _MOST_TAPS:
            continue
        if any(len(pair) != 2 for pair in (stride, padding, dilation)):
            continue
        with graph_module.graph.inserting_before(node):
            # Values for neighbouring channels lie side by side, as in x.
            node.update_arg(1, _buffer(graph_module, node, weight.permute(2, 3, 0, 1).contiguous()))
        bias = node.args[2] if len(node.args) > 2 else None
        node.target, node.args = _shifted_products, (*node.args[:2], bias, stride, padding, dilation)
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


def _buffer(graph_module: fx.GraphModule, node: fx.Node, value: Tensor) -> fx.Node:
    """Add a buffer for a node, and return the buffer's node at the graph's insertion point."""
    name = f"_lensbox_{node.name}_{len(graph_module._buffers)}"
    graph_module.register_buffer(name, value)
    return graph_module.graph.get_attr(name)


def _value(graph_module: fx.GraphModule, node: Any) -> Tensor | None:
    """Return the parameter or buffer of a node; None if the node is absent or computed."""
    if not isinstance(node, fx.Node) or node.op != "get_attr":
        return None
    value: Any = reduce(getattr, str(node.target).split("."), graph_module)
    return value.detach() if isinstance(value, Tensor) else None


def _finish(graph_module: fx.GraphModule) -> None:
    graph_module.graph.eliminate_dead_code()
    graph_module.graph.lint()
    graph_module.recompile()
