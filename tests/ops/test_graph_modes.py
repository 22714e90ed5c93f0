"""The ops in TorchScript, torch.compile and torch.export: the same values as in eager mode."""

import warnings
from collections.abc import Callable

import pytest
import torch
from box_reference import random_boxes
from torch import Tensor

from lensbox.ops import giou, masked_giou_loss, padded_nms, pairwise_giou
from lensbox.runtime.torchscript import quiet_torchscript


class AllOps(torch.nn.Module):
    """Every op once; float inputs [B, N, 4]."""

    def forward(self, pred: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        loss = torch.ops.lensbox.masked_giou_loss(pred, target)
        paired = torch.ops.lensbox.giou(pred, target)
        crossed = torch.ops.lensbox.pairwise_giou(pred, target)
        kept = torch.ops.lensbox.padded_nms(pred, paired, 0.5, -0.5, 100, 8)
        return loss, paired, crossed, kept[2]


@pytest.fixture
def inputs(device: torch.device) -> tuple[Tensor, Tensor]:
    return random_boxes(3, 12).to(device), random_boxes(3, 12).to(device)


def assert_same(ours: tuple[Tensor, ...], theirs: tuple[Tensor, ...]) -> None:
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_torchscript(inputs: tuple[Tensor, Tensor]) -> None:
    with quiet_torchscript():
        scripted = torch.jit.script(AllOps())
    for _ in range(3):  # the profiling executor changes the graph after the first runs
        assert_same(scripted(*inputs), AllOps()(*inputs))
    pred = inputs[0].clone().requires_grad_()
    (grad,) = torch.autograd.grad(scripted(pred, inputs[1])[0], pred)
    expected = inputs[0].clone().requires_grad_()
    assert torch.equal(grad, torch.autograd.grad(masked_giou_loss(expected, inputs[1]), expected)[0])


def compile_quietly(function: Callable, **options: object) -> Callable:
    def run(*arguments: Tensor):
        with warnings.catch_warnings():
            # torch's own: TF32 hints on the GPU, and deprecated calls inside its tracer.
            warnings.simplefilter("ignore")
            return torch.compile(function, fullgraph=True, **options)(*arguments)

    return run


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(inputs: tuple[Tensor, Tensor], dynamic: bool) -> None:
    torch.compiler.reset()
    assert_same(compile_quietly(AllOps(), dynamic=dynamic)(*inputs), AllOps()(*inputs))


def test_compile_gradient(inputs: tuple[Tensor, Tensor]) -> None:
    def objective(pred: Tensor, target: Tensor) -> Tensor:
        boxes = pred.relu() + 0.5
        return (
            masked_giou_loss(boxes, target)
            + giou(boxes, target[:1]).mean()
            + pairwise_giou(boxes, target).mean()
        )

    torch.compiler.reset()
    grads = []
    for function in (objective, compile_quietly(objective)):
        pred = inputs[0].clone().requires_grad_()
        function(pred, inputs[1]).backward()
        grads.append(pred.grad)
    torch.testing.assert_close(grads[0], grads[1])


def test_export_with_dynamic_shapes(inputs: tuple[Tensor, Tensor]) -> None:
    batch, count = torch.export.Dim("batch", min=1, max=64), torch.export.Dim("count", min=2, max=512)
    shapes = ({0: batch, 1: count}, {0: batch, 1: count})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, inside its tracer
        program = torch.export.export(AllOps(), inputs, dynamic_shapes=shapes)
    targets = {str(node.target) for node in program.graph.nodes}
    assert {
        "lensbox.masked_giou_loss.default",
        "lensbox.giou.default",
        "lensbox.padded_nms.default",
    } <= targets
    other = (random_boxes(5, 31).to(inputs[0].device), random_boxes(5, 31).to(inputs[0].device))
    assert_same(program.module()(*other), AllOps()(*other))


def test_meta_tensors_have_the_real_shapes(inputs: tuple[Tensor, Tensor]) -> None:
    real = AllOps()(*inputs)
    meta = AllOps()(*(t.to("meta") for t in inputs))
    for a, b in zip(real, meta, strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
    assert padded_nms(inputs[0].to("meta"), inputs[0][..., 0].to("meta"), 0.5, 0.1, 3, 7).boxes.shape == (
        3,
        7,
        4,
    )
