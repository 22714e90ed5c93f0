"""What only a GPU can show: streams and graphs side by side. What every op owes is in test_every_op.py."""

from collections.abc import Callable

import pytest
import torch
from box_reference import random_boxes
from torch import Tensor

from lensbox.ops import giou, masked_giou_loss, padded_nms

pytestmark = pytest.mark.gpu


def batch(images: int = 64, slots: int = 256) -> tuple[Tensor, Tensor]:
    pred, target = random_boxes(images, slots), random_boxes(images, slots, dtype=torch.uint8)
    target[torch.rand(images, slots) > 0.2] = 0
    return pred.cuda(), target.cuda()


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


def test_tensors_on_two_devices() -> None:
    boxes = torch.zeros(3, 4)
    with pytest.raises(RuntimeError, match=r"boxes2 must be on the device of boxes1 \(cuda:0\), got cpu"):
        giou(boxes.cuda(), boxes)
    with pytest.raises(RuntimeError, match="target must be on the device of pred"):
        masked_giou_loss(boxes.cuda(), boxes)
    with pytest.raises(RuntimeError, match="scores must be on the device of boxes"):
        padded_nms(boxes[None].cuda(), boxes[None, :, 0], 0.5, 0.1, 3, 3)
