"""Weights and graphs of an artifact that nobody uses any more stay until every stream is done with them."""

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lensbox.runtime import Artifact, load_artifact

pytestmark = pytest.mark.gpu
LOW, IOU = 0.05, 0.4


class Factor:
    """About a second of work for the current stream."""

    def __init__(self) -> None:
        self._ones = torch.ones(8192, 8192, device="cuda")
        self.keep_busy()  # cuBLAS takes its memory in the first call

    def keep_busy(self) -> None:
        for _ in range(40):
            torch.mm(self._ones, self._ones)


def batch() -> Tensor:
    return torch.randint(0, 256, (4, 1, 256, 256), dtype=torch.uint8, device="cuda")


def weights_of(artifact: Artifact) -> list[Tensor]:
    """Return the weights, which are constants of the frozen graph."""
    nodes = artifact.module.detect.graph.findAllNodes("prim::Constant")
    values = [node.output().toIValue() for node in nodes]
    return [value for value in values if isinstance(value, Tensor) and value.is_cuda]


def canvases_of(artifact: Artifact) -> list[Tensor]:
    """Return the canvases of the graphs."""
    captured: Any = artifact._pipeline._captured
    return [graph.canvases for graphs in captured._graphs.values() for graph in graphs.values()]


@pytest.mark.parametrize("is_captured", [False, True])
def test_memory_is_overwritten_only_after_the_last_work(artifact_path: Path, is_captured: bool) -> None:
    artifact = load_artifact(artifact_path, "cuda")
    if is_captured:
        artifact.capture([4], LOW, IOU)
    canvases, stream, factor = batch(), torch.cuda.Stream(), Factor()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        factor.keep_busy()
        expected = [tensor.clone() for tensor in artifact.detect(canvases, LOW, IOU).values()]
    torch.cuda.synchronize()
    memory = canvases_of(artifact) if is_captured else weights_of(artifact)
    assert memory
    layouts = [(one.shape, one.dtype, one.data_ptr(), one.data_ptr() + one.nbytes) for one in memory]
    del memory

    with torch.cuda.stream(stream):
        factor.keep_busy()
        found = artifact.detect(canvases, LOW, IOU)
    del artifact
    gc.collect()
    # The default stream, for which the memory was allocated, has nothing else to do.
    kinds = [(shape, dtype) for shape, dtype, *_ in layouts for _ in (1, 2)]
    taken = [torch.full(shape, 77, dtype=dtype, device="cuda") for shape, dtype in kinds]
    torch.cuda.synchronize()
    # Freed neighbours become one block, so that addresses need not be the same.
    is_reused = any(
        one.data_ptr() < end and begin < one.data_ptr() + one.nbytes
        for one in taken
        for *_, begin, end in layouts
    )
    assert is_reused, "other memory was taken: this shows nothing"
    assert all(bool((one == 77).all()) for one in taken), "work of the artifact wrote into another's memory"
    for ours, theirs in zip(found.values(), expected, strict=True):
        assert torch.equal(ours, theirs)


def test_a_caller_may_capture(artifact_path: Path) -> None:
    """Work that the caller captures into a graph of its own cannot be waited for."""
    artifact = load_artifact(artifact_path, "cuda")
    canvases = batch()
    expected = artifact.detect(canvases, LOW, IOU)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = artifact.detect(canvases, LOW, IOU)
    graph.replay()
    assert torch.equal(found["counts"], expected["counts"])
    artifact._pipeline._work.wait()
