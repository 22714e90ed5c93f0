"""Graph passes before compilation change answers only by rounding."""

from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from lensbox.export.formats.graph_passes import expand_depthwise, fold_batch_norms, lay_out, reduce_products


class Net(nn.Module):
    """Convolutions with their batch norms, one whose result is also used bare, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.grouped = nn.Sequential(
            nn.Conv2d(8, 8, 3, groups=8, padding="same"), nn.BatchNorm2d(8, affine=False)
        )
        self.shared, self.norm = nn.Conv2d(8, 4, 1), nn.BatchNorm2d(4)
        self.linear = nn.Linear(4, 2)
        for layer in self.modules():
            if isinstance(layer, nn.BatchNorm2d):
                nn.init.uniform_(layer.running_mean, -1, 1)  # type: ignore[arg-type]
                nn.init.uniform_(layer.running_var, 0.5, 2)  # type: ignore[arg-type]
                if layer.affine:
                    nn.init.uniform_(layer.weight, 0.5, 1.5)
                    nn.init.uniform_(layer.bias, -1, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.shared(self.grouped(self.first(x)))
        scores: Tensor = self.linear((y + self.norm(y)).mean(dim=(2, 3))).float()
        return scores


def traced(module: nn.Module, x: Tensor) -> fx.GraphModule:
    with torch.no_grad():
        graph = torch.export.export(module.eval(), (x,), strict=False).module(check_guards=False)
    assert isinstance(graph, fx.GraphModule)
    return graph


@pytest.fixture(scope="module")
def x() -> Tensor:
    return torch.randn(2, 3, 12, 12, generator=torch.Generator().manual_seed(1))


def targets(graph: fx.GraphModule) -> list[str]:
    return [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]


def test_batch_norms_are_folded_where_nothing_else_looks(x: Tensor) -> None:
    net = Net()
    graph = traced(net, x)
    assert fold_batch_norms(graph) == 2
    assert targets(graph).count("aten.batch_norm.default") == 1
    torch.testing.assert_close(graph(x), net(x), rtol=1e-5, atol=1e-5)


class Computed(nn.Module):
    """Parameters that the graph computes: of a convolution, and of the norm behind another."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(3, 3, 1, 1))
        self.offset = nn.Parameter(torch.rand(3))
        self.norm = nn.BatchNorm2d(3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(nn.functional.conv2d(x, self.weight, self.offset * 2).float())
        mean, variance = self.norm.running_mean, self.norm.running_var
        x = nn.functional.conv2d(x, self.weight, self.offset)
        return nn.functional.batch_norm(x, mean, variance, self.offset * 3, self.offset + 1)


def test_computed_parameters_stay(x: Tensor) -> None:
    net = Computed()
    graph = traced(net, x)
    assert fold_batch_norms(graph) == 0
    torch.testing.assert_close(graph(x), net(x))
    reduce_products(graph, torch.bfloat16)
    torch.testing.assert_close(graph(x), net(x), rtol=0.02, atol=0.02)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_products_are_reduced_and_norms_are_not(x: Tensor, dtype: torch.dtype) -> None:
    net = Net()
    graph = traced(net, x)
    fold_batch_norms(graph)
    reduce_products(graph, dtype)
    seen: dict[str, torch.dtype] = {}

    class Watch(fx.Interpreter):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            if isinstance(args[0], Tensor):
                seen[str(target)] = args[0].dtype
            return super().call_function(target, args, kwargs)

    with torch.no_grad():
        answer = Watch(graph).run(x)
    assert seen["aten.conv2d.default"] == seen["aten.conv2d.padding"] == seen["aten.linear.default"] == dtype
    assert seen["aten.batch_norm.default"] == torch.float32
    assert answer.dtype == torch.float32
    difference = (answer - net(x)).abs().max()
    assert 0 < difference < 0.1


def test_a_layout_changes_no_value(x: Tensor) -> None:
    net = Net()
    graph = traced(net, x)
    lay_out(graph, torch.channels_last)
    weights = [value for value in graph.buffers() if value.dim() == 4]
    assert len(weights) == 3
    assert all(weight.is_contiguous(memory_format=torch.channels_last) for weight in weights)
    torch.testing.assert_close(graph(x), net(x), rtol=1e-5, atol=1e-5)


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
        assert expand_depthwise(graph) == 3
        assert targets(graph).count("aten.conv2d.default") == 5
        torch.testing.assert_close(graph(images), net(images), rtol=1e-12, atol=1e-12)


def test_sums_of_half_precision_are_rounded_once() -> None:
    random = torch.Generator().manual_seed(1)
    net = nn.Conv2d(8, 8, 5, padding=2, groups=8, bias=False).requires_grad_(False)
    net.weight.normal_(generator=random)
    x = torch.randn(1, 8, 20, 20, generator=random)
    graph = traced(net, x)
    reduce_products(graph, torch.float16)
    assert expand_depthwise(graph) == 1
    found = graph(x)
    assert found.dtype == torch.float16
    exact = nn.functional.conv2d(x.half().double(), net.weight.half().double(), padding=2, groups=8)
    torch.testing.assert_close(found.double(), exact, rtol=2**-11, atol=1e-6)
