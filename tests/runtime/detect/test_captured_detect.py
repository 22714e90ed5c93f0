"""CUDA graphs give the results of plain calls for every batch, threshold, thread and stream."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from picture_files import smooth_image
from torch import Tensor

from lensbox.runtime import Artifact, load_artifact

Outputs = dict[str, Tensor]
SIZES = [2, 8, 5]
LOW, IOU = 0.05, 0.4


def load(path: Path) -> Artifact:
    return load_artifact(path, "cuda")


def batch(size: int, seed: int = 0) -> Tensor:
    """Canvases on the GPU, uint8 [size, 1, 256, 256]."""
    return smooth_image(size, 256, 256, seed)[:, None].cuda()


def assert_same(found: Outputs, expected: Outputs) -> None:
    """Compare with a tolerance: kernels for other batch sizes sum in another order."""
    for one, other in zip(found.values(), expected.values(), strict=True):
        assert one.is_cuda
        assert one.shape == other.shape
        assert one.dtype == other.dtype
    assert torch.equal(found["counts"], expected["counts"])
    torch.testing.assert_close(found["scores"], expected["scores"], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found["boxes"], expected["boxes"], rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("sizes", [[0], [-1], [4, 0], [2.0], [True], ["2"]])
def test_rejects_bad_arguments(artifact: Artifact, sizes: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"batch_sizes must be whole numbers from 1, got "):
        artifact.capture(sizes)
    with pytest.raises(ValueError, match=r"iou_threshold must be between 0 and 1, got 1.5"):
        artifact.capture([1], iou_threshold=1.5)


@pytest.mark.gpu
def test_graphs_are_used(artifact_path: Path) -> None:
    artifact = load(artifact_path)
    artifact.capture([2, 4])
    plain = artifact.module

    def refuse(*_: Any) -> Outputs:
        raise AssertionError("a plain call")

    artifact._pipeline.module = SimpleNamespace(
        preprocess=plain.preprocess, restore=plain.restore, detect=refuse
    )
    assert len(artifact.detect(batch(3))["counts"]) == 3
    image = torch.zeros(3, 20, 30, dtype=torch.uint8)
    assert len(artifact.detect_images([image] * 4)) == 4
    artifact.detect_image(image)
    for canvases, thresholds in ((batch(5), ()), (batch(1)[:0], ()), (batch(2), (0.7,))):
        with pytest.raises(AssertionError, match="a plain call"):
            artifact.detect(canvases, *thresholds)


@pytest.mark.gpu
def test_boxes_are_restored_for_each_photograph(artifact_path: Path) -> None:
    """A graph holds no geometry, and none of the batch before."""
    artifact = load(artifact_path)
    sizes = [(256, 256), (120, 500), (640, 300), (300, 301), (90, 90)]
    images = [smooth_image(1, *size, seed).cuda() for seed, size in enumerate(sizes)]
    expected = artifact.detect_images(images, LOW, IOU)
    assert all(len(one.scores) for one in expected)
    artifact.capture([2, 8], LOW, IOU)
    for order in (range(5), [4, 3, 2, 1, 0], [3, 1], [2]):
        found = artifact.detect_images([images[index] for index in order], LOW, IOU)
        for one, index in zip(found, order, strict=True):
            torch.testing.assert_close(one.scores, expected[index].scores, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(one.boxes, expected[index].boxes, rtol=1e-4, atol=1e-2)


@pytest.mark.gpu
def test_other_thresholds(artifact_path: Path) -> None:
    """A graph holds its thresholds. Other thresholds run without a graph, or with their own graph."""
    artifact = load(artifact_path)
    canvases = batch(4)
    thresholds = [(None, None), (LOW, None), (LOW, 0.1), (0.0, 1.0), (1.0, 0.5)]
    expected = [artifact.detect(canvases, *pair) for pair in thresholds]
    assert len({tuple(found["counts"].tolist()) for found in expected}) > 3
    artifact.capture([4])
    for pair, found in zip(thresholds, expected, strict=True):
        assert_same(artifact.detect(canvases, *pair), found)
    artifact.capture([4], LOW, 0.1)
    artifact.capture([8, 4], LOW)
    for pair, found in zip(thresholds, expected, strict=True):
        assert_same(artifact.detect(canvases, *pair), found)


@pytest.mark.gpu
@pytest.mark.parametrize("own_streams", [False, True])
@pytest.mark.parametrize("captured_meanwhile", [[], [1, 3, 9]])
def test_many_threads_at_once(artifact_path: Path, own_streams: bool, captured_meanwhile: list[int]) -> None:
    """Batches of captured sizes, of sizes between and below them, and larger ones. The results are copies."""
    artifact = load(artifact_path)
    expected = {size: artifact.detect(batch(size, size), LOW, IOU) for size in range(1, 10)}
    if not captured_meanwhile:
        artifact.capture(SIZES, LOW, IOU)
    torch.cuda.synchronize()

    def work(number: int) -> None:
        stream = torch.cuda.Stream() if own_streams else torch.cuda.current_stream()
        with torch.cuda.stream(stream):
            for turn in range(30):
                size = 1 + (number + turn) % 9
                assert_same(artifact.detect(batch(size, size), LOW, IOU), expected[size])

    with ThreadPoolExecutor(6) as pool:
        running = [pool.submit(work, number) for number in range(6)]
        for size in captured_meanwhile:
            artifact.capture([size], LOW, IOU)
        for future in running:
            future.result()
