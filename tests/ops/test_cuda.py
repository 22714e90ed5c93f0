"""What only a GPU can show: streams, graph capture, agreement with the CPU, no wait for the device."""

import warnings
from collections.abc import Callable

import pytest
import torch
from box_reference import random_boxes
from torch import Tensor

from lensbox.ops import giou, masked_giou_loss, padded_nms, pairwise_giou

pytestmark = pytest.mark.gpu


def batch(images: int = 64, slots: int = 256) -> tuple[Tensor, Tensor]:
    pred, target = random_boxes(images, slots), random_boxes(images, slots, dtype=torch.uint8)
    target[torch.rand(images, slots) > 0.2] = 0
    return pred.cuda(), target.cuda()


def run_all(pred: Tensor, target: Tensor) -> list[Tensor]:
    pred = pred.detach().requires_grad_()
    loss = masked_giou_loss(pred, target)
    (grad,) = torch.autograd.grad(loss, pred)
    paired = giou(pred.detach(), target)
    crossed = pairwise_giou(pred.detach(), target[:, :33])
    kept = padded_nms(pred.detach(), paired, 0.5, -0.9, 256, 100)
    many = padded_nms(pred.detach().view(2, -1, 4), paired.view(2, -1), 0.5, -0.9, 3000, 500)
    return [loss.detach(), grad, paired, crossed, *kept, *many]


def test_cpu_and_cuda_agree() -> None:
    pred, target = batch()
    on_gpu, on_cpu = run_all(pred, target), run_all(pred.cpu(), target.cpu())
    # Sums are added in another order; everything else is equal to the bit.
    torch.testing.assert_close(on_gpu[0].cpu(), on_cpu[0], rtol=1e-6, atol=0)
    for ours, theirs in zip(on_gpu[2:], on_cpu[2:], strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=0, atol=0)
    torch.testing.assert_close(on_gpu[1].cpu(), on_cpu[1], rtol=1e-6, atol=1e-12)


def test_another_stream() -> None:
    pred, target = batch()
    expected = run_all(pred, target)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)  # were a kernel on the default stream, it would run too early
        late = pred.clone().fill_(0)
        late.copy_(pred)
        out = run_all(late, target)
    stream.synchronize()
    for ours, theirs in zip(out, expected, strict=True):
        assert torch.equal(ours, theirs)


def test_many_streams_at_once() -> None:
    batches = [batch(512, 256) for _ in range(8)]
    expected = [masked_giou_loss(*arguments).item() for arguments in batches]
    streams = [torch.cuda.Stream() for _ in batches]
    torch.cuda.synchronize()
    losses: list[list[Tensor]] = [[] for _ in batches]
    for _ in range(50):
        for stream, arguments, of_stream in zip(streams, batches, losses, strict=True):
            with torch.cuda.stream(stream):
                of_stream.append(masked_giou_loss(*arguments))
    torch.cuda.synchronize()
    for of_stream, value in zip(losses, expected, strict=True):
        assert {loss.item() for loss in of_stream} == {value}


def test_graph_capture() -> None:
    pred, target = batch()
    run_all(pred, target)  # warm-up, as torch.cuda.graph asks for
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        captured = run_all(pred, target)
    for _ in range(3):
        fresh_pred, fresh_target = batch()
        pred.copy_(fresh_pred)
        target.copy_(fresh_target)
        graph.replay()
        for ours, theirs in zip(captured, run_all(fresh_pred, fresh_target), strict=True):
            assert torch.equal(ours, theirs)


def loss_of_batch(seed: int) -> Callable[[], Tensor]:
    torch.manual_seed(seed)
    arguments = batch(512, 256)
    return lambda: masked_giou_loss(*arguments)


def nms_of_batch(seed: int) -> Callable[[], Tensor]:
    torch.manual_seed(seed)
    boxes, scores = random_boxes(5, 1024).cuda(), torch.rand(5, 1024).cuda()
    return lambda: padded_nms(boxes, scores, 0.5, 0.1, 1024, 300).indices


@pytest.mark.parametrize("make", [loss_of_batch, nms_of_batch])
def test_graphs_replayed_side_by_side(make: Callable[[int], Callable[[], Tensor]]) -> None:
    # Captured on one stream, replayed on two, beside eager calls: their tickets must not be shared.
    work = [make(0), make(1)]
    expected = [call() for call in work]
    graphs, results = [], []
    for call in work:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results.append([call() for _ in range(20)])
        graphs.append(graph)
    streams = [torch.cuda.Stream() for _ in graphs]
    for _ in range(20):
        for stream, graph in zip(streams, graphs, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
        eager = work[0]()
        torch.cuda.synchronize()
        assert torch.equal(eager, expected[0])
        for of_graph, value in zip(results, expected, strict=True):
            assert all(torch.equal(result, value) for result in of_graph)


def test_nothing_waits_for_the_device() -> None:
    pred, target = batch()
    run_all(pred, target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls this mode a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        run_all(pred, target)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_tensors_on_two_devices() -> None:
    boxes = torch.zeros(3, 4)
    with pytest.raises(RuntimeError, match=r"boxes2 must be on the device of boxes1 \(cuda:0\), got cpu"):
        giou(boxes.cuda(), boxes)
    with pytest.raises(RuntimeError, match="target must be on the device of pred"):
        masked_giou_loss(boxes.cuda(), boxes)
    with pytest.raises(RuntimeError, match="scores must be on the device of boxes"):
        padded_nms(boxes[None].cuda(), boxes[None, :, 0], 0.5, 0.1, 3, 3)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_second_device() -> None:
    pred, target = batch()
    for ours, theirs in zip(
        run_all(pred.to("cuda:1"), target.to("cuda:1")), run_all(pred, target), strict=True
    ):
        assert ours.device.index == 1
        assert torch.equal(ours.cpu(), theirs.cpu())
