"""Streams and graphs side by side, which only a GPU can show. test_every_op.py has the rules for all ops."""

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from box_reference import random_boxes
from torch import Tensor

from lensbox.ops import giou, letterbox, masked_giou_loss, padded_nms

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


def test_threads_on_their_per_thread_streams() -> None:
    # cudaStreamPerThread is one handle, 2, for as many streams as there are threads. The allocator takes it
    # for one stream and would hand memory that a thread frees to the others, so each thread has its own pool.
    batches = [batch(512, 256) for _ in range(4)]
    expected = [masked_giou_loss(*arguments).item() for arguments in batches]
    torch.cuda.synchronize()

    def losses(arguments: tuple[Tensor, Tensor], pool: torch.cuda.MemPool) -> set[float]:
        with torch.cuda.use_mem_pool(pool), torch.cuda.stream(torch.cuda.ExternalStream(2)):
            results = [masked_giou_loss(*arguments) for _ in range(200)]
            return {result.item() for result in results}

    pools = [torch.cuda.MemPool() for _ in batches]  # they must outlive the tensors
    with ThreadPoolExecutor(len(batches)) as executor:
        assert list(executor.map(losses, batches, pools)) == [{value} for value in expected]


def test_destroyed_graphs_release_their_counters() -> None:
    work = [loss_of_batch(0), nms_of_batch(1)]
    expected = [call() for call in work]
    for _ in range(100):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = [call() for call in work]
        graph.replay()
        graph.replay()
        torch.cuda.synchronize()
        assert all(torch.equal(result, value) for result, value in zip(results, expected, strict=True))
        del graph


def test_a_capture_holds_no_more_than_the_launches() -> None:
    # The counters of a captured launch are zero already: no node of the graph zeroes them.
    call = loss_of_batch(0)
    expected = call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities, acc_events=True) as profile:
        graph.replay()
        torch.cuda.synchronize()
    assert torch.equal(result, expected)
    assert [event.name for event in profile.events() if "memset" in event.name.lower()] == []


def test_gpu_thresholds_are_not_captured() -> None:
    boxes, scores = random_boxes(2, 64).cuda(), torch.rand(2, 64).cuda()

    def suppress(boxes: Tensor, scores: Tensor, threshold: Tensor) -> Tensor:
        counts: Tensor = torch.ops.lensbox.padded_nms(boxes + 1, scores, threshold, threshold * 0, 64, 10)[2]
        return counts + 1

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own
        compiled = torch.compile(suppress, mode="reduce-overhead")
        for value in (0.2, 0.5, 0.9, 0.3):
            threshold = torch.tensor(value, device="cuda")
            assert torch.equal(compiled(boxes, scores, threshold), suppress(boxes, scores, threshold))


def test_tensors_on_two_devices() -> None:
    boxes = torch.zeros(3, 4)
    with pytest.raises(RuntimeError, match=r"boxes2 must be on the device of boxes1 \(cuda:0\), got cpu"):
        giou(boxes.cuda(), boxes)
    with pytest.raises(RuntimeError, match="target must be on the device of pred"):
        masked_giou_loss(boxes.cuda(), boxes)
    with pytest.raises(RuntimeError, match="scores must be on the device of boxes"):
        padded_nms(boxes[None].cuda(), boxes[None, :, 0], 0.5, 0.1, 3, 3)
    gray = torch.zeros(1, 4, 5, dtype=torch.uint8)
    with pytest.raises(RuntimeError, match=r"images\[1\] must be on the device of images\[0\].*got cpu"):
        letterbox([gray.cuda(), gray], 8, 8)
