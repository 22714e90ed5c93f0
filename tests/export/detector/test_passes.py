"""Graph passes before compilation change answers only by rounding."""

from typing import Any

import torch
from torch import Tensor, fx, nn

from lensbox.export.detector.passes import expand_depthwise, fold_batch_norms, lay_out


def traced(module: nn.Module, x: Tensor) -> fx.GraphModule:
    with torch.no_grad():
        graph = torch.export.export(module.eval(), (x,), strict=False).module(check_guards=False)
    assert isinstance(graph, fx.GraphModule)
    return graph


class Depthwise(nn.Module):
    """Three depthwise convolutions to expand, and others: a computed weight, 49 weights per filter, two
    filters per channel, two channels per filter, strides in a list of one."""

    def __init__(self) -> None:
        super().__init__()
        self.strided = nn.Conv2d(8, 8, 5, stride=2, padding=2, groups=8)
        self.dilated = nn.Conv2d(8, 8, (3, 2), (1, 2), (2, 0), (2, 3), groups=8, bias=False)
        self.weight = nn.Parameter(torch.rand(8, 1, 3, 3))
        self.others = nn.Sequential(
            nn.Conv2d(8, 8, 7, padding=3, groups=8),
            nn.Conv2d(8, 16, 3, groups=8),
            nn.Conv2d(16, 8, 1, groups=8),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.dilated(self.strided(x).relu())
        y = nn.functional.conv2d(y, self.weight, padding=1, groups=8)
        y = self.others(nn.functional.conv2d(y, self.weight + 1, groups=8))
        scores: Tensor = torch.conv2d(y, self.weight, None, [2], [1], [1], 8)
        return scores


def test_depthwise_convolutions_become_sums() -> None:
    net = Depthwise().double()
    x = torch.randn(2, 8, 37, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for images in (x, x[0]):
        graph = traced(net, images)
        lay_out(graph, torch.channels_last)
        weights = [value for value in graph.parameters() if value.dim() == 4]
        assert all(weight.is_contiguous(memory_format=torch.channels_last) for weight in weights)
        assert expand_depthwise(graph) == 3
        assert [str(node.target) for node in graph.graph.nodes].count("aten.conv2d.default") == 5
        torch.testing.assert_close(graph(images), net(images), rtol=1e-12, atol=1e-12)


class Norms(nn.Module):
    """A batch norm to fold, one behind a result that is used again, and one in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(4, 4, 3, bias=False) for _ in range(3))
        self.norms = nn.ModuleList(nn.BatchNorm2d(4) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        first = self.norms[0](self.layers[0](x))
        second = self.layers[1](first)
        third = self.layers[2](self.norms[1](second) * second.sigmoid())
        norm: Any = self.norms[2]
        return nn.functional.batch_norm(third, norm.running_mean, norm.running_var, training=True)


def test_batch_norms_are_folded_only_where_values_stay() -> None:
    net, x = Norms().double(), torch.randn(2, 4, 20, 20, dtype=torch.float64)
    norms: Any = net.norms
    for norm in norms:
        for values in (norm.running_mean, norm.running_var, norm.weight.data, norm.bias.data):
            values.uniform_(0.5, 2)
    graph = traced(net, x)
    fold_batch_norms(graph)
    assert [str(node.target) for node in graph.graph.nodes].count("aten.batch_norm.default") == 2
    torch.testing.assert_close(graph(x), net(x), rtol=1e-9, atol=1e-9)


def test_sums_of_half_precision_are_rounded_once() -> None:
    random = torch.Generator().manual_seed(1)
    net = nn.Conv2d(8, 8, 5, padding=2, groups=8, bias=False).requires_grad_(False).half()
    net.weight.normal_(generator=random)
    x = torch.randn(1, 8, 20, 20, generator=random).half()
    graph = traced(net, x)
    assert expand_depthwise(graph) == 1
    found = graph(x)
    assert found.dtype == torch.float16
    exact = nn.functional.conv2d(x.double(), net.weight.double(), padding=2, groups=8)
    torch.testing.assert_close(found.double(), exact, rtol=2**-11, atol=1e-6)
