"""Tests that need a GPU: rules for every op, concurrent streams, CUDA graphs."""

import gc
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from box_reference import random_boxes
from op_samples import EXACT, Sample, assert_same, every_sample, make_inputs
from torch import Tensor

from lensbox.ops import giou, letterbox, masked_giou_loss, padded_nms

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda")

Captured = tuple[torch.cuda.CUDAGraph, list[Tensor]]


@every_sample
def test_cpu_and_cuda_agree(sample: Sample) -> None:
    inputs = make_inputs(CUDA, images=64, slots=256)
    on_cpu = inputs.map(Tensor.cpu)
    for index, (ours, theirs) in enumerate(zip(sample.run(inputs), sample.run(on_cpu), strict=True)):
        is_gradient = bool(sample.trains) and index > 0
        exact = (sample.name_of_op in EXACT and not is_gradient) or not theirs.is_floating_point()
        scale = theirs.abs().max().item() if theirs.is_floating_point() and theirs.numel() > 0 else 0.0
        tolerance = {"rtol": 0, "atol": 0} if exact else {"rtol": 1e-6, "atol": 1e-6 * scale}
        torch.testing.assert_close(ours.cpu(), theirs, **tolerance)


@every_sample
def test_another_stream(sample: Sample) -> None:
    inputs = make_inputs(CUDA)
    expected = sample.run(inputs)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)  # were a kernel on the default stream, it would run too early
        late = inputs.map(torch.zeros_like)
        late.copy_(inputs)
        outputs = sample.run(late)
    stream.synchronize()
    assert_same(outputs, expected)


@every_sample
def test_graph_capture(sample: Sample) -> None:
    inputs = make_inputs(CUDA)
    sample.run(inputs)  # warm-up, as torch.cuda.graph asks for
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        captured = sample.run(inputs)
    for _ in range(3):
        fresh = make_inputs(CUDA)
        inputs.copy_(fresh)
        graph.replay()
        assert_same(captured, sample.run(fresh))


@every_sample
def test_nothing_waits_for_the_device(sample: Sample) -> None:
    inputs = make_inputs(CUDA)
    sample.run(inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls this mode a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        sample.run(inputs)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@every_sample
def test_second_device(sample: Sample) -> None:
    inputs = make_inputs(CUDA)
    second = inputs.map(lambda tensor: tensor.to("cuda:1"))
    for ours, theirs in zip(sample.run(second), sample.run(inputs), strict=True):
        assert ours.device.index == 1
        assert torch.equal(ours.cpu(), theirs.cpu())


# --- streams and graphs side by side ---


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
    # Captured on one stream, replayed on two, beside eager calls: their arrival counters must not be shared.
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


_capturing = threading.Lock()  # torch captures one graph at a time


def captured(call: Callable[[], Tensor], stream: torch.cuda.Stream, pool: Any = None) -> Captured:
    """Capture three calls without the wait and the collection of garbage of torch.cuda.graph."""
    graph = torch.cuda.CUDAGraph()
    with _capturing, torch.cuda.stream(stream):
        graph.capture_begin(pool, capture_error_mode="thread_local")
        results = [call() for _ in range(3)]
        graph.capture_end()
    return graph, results


def test_threads_launch_capture_and_destroy_at_once() -> None:
    """CUDA gives counters back while it holds locks for which the threads that take counters wait."""
    calls = [loss_of_batch(0), nms_of_batch(1)]
    expected = [call() for call in calls]
    # Of torch's 32 streams each thread has its own: no other may launch on a stream that is captured.
    streams = [[torch.cuda.Stream() for _ in range(3)] for _ in range(8)]
    torch.cuda.synchronize()

    def launch(own: list[torch.cuda.Stream]) -> bool:
        fine = True
        for turn in range(600):
            with torch.cuda.stream(own[turn % 3]):
                fine = torch.equal(calls[turn % 2](), expected[turn % 2]) and fine
        return fine

    def replay(own: list[torch.cuda.Stream]) -> bool:
        fine = True
        for turn in range(60):
            graph, results = captured(calls[turn % 2], own[0])
            with torch.cuda.stream(own[1]):
                for _ in range(3):
                    graph.replay()
                fine = fine and all(torch.equal(result, expected[turn % 2]) for result in results)
        return fine

    with ThreadPoolExecutor(8) as pool:
        running = [pool.submit((launch, replay)[index % 2], own) for index, own in enumerate(streams)]
        assert all(future.result() for future in running)


@pytest.mark.exhaustive
def test_more_graphs_than_counters() -> None:
    """The counters of the last graphs lie in their own memory, and a node zeroes them."""
    call, stream, pool = loss_of_batch(0), torch.cuda.Stream(), torch.cuda.graph_pool_handle()
    expected = call()
    torch.cuda.synchronize()
    graphs = [captured(call, stream, pool) for _ in range(4500)]
    for _ in range(2):
        for graph, _ in graphs:
            graph.replay()
        torch.cuda.synchronize()
        assert all(torch.equal(result, expected) for _, results in graphs for result in results)
    del graph, graphs[:2250]
    for _ in range(20):
        assert torch.equal(call(), expected)


def test_a_capture_holds_no_more_than_the_launches() -> None:
    # The counters of a captured launch are zero already: no node of the graph zeroes them.
    call = loss_of_batch(0)
    expected = call()
    gc.collect()
    torch.cuda.synchronize()  # CUDA gives back the counters of earlier graphs some time after their end
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
