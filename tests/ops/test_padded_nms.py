"""padded_nms against a Python loop, and its promises: order, ties, shapes, padding."""

from typing import Any

import pytest
import torch
from box_reference import FLOAT_DTYPES, nms_reference, random_boxes
from torch import Tensor

from lensbox.ops import padded_nms


def check(
    boxes: Tensor,
    scores: Tensor,
    device: torch.device,
    iou_threshold: float,
    score_threshold: float,
    candidates: int,
    slots: int,
    categories: Tensor | None = None,
) -> None:
    rule = (iou_threshold, score_threshold, candidates, slots)
    moved = categories.to(device) if categories is not None else None
    out = padded_nms(boxes.to(device), scores.to(device), *rule, moved)
    batch = boxes.shape[0]
    assert out.boxes.shape == (batch, slots, 4)
    assert out.boxes.dtype == boxes.dtype
    assert out.scores.dtype == scores.dtype
    assert out.indices.dtype == torch.int64
    assert out.counts.dtype == torch.int32
    for image in range(batch):
        kinds = categories[image] if categories is not None else None
        kept = nms_reference(boxes[image], scores[image], *rule, kinds)
        count = len(kept)
        assert out.counts[image].item() == count
        assert out.indices[image].tolist() == kept + [-1] * (slots - count)
        torch.testing.assert_close(out.boxes[image, :count].cpu(), boxes[image, kept], rtol=0, atol=0)
        torch.testing.assert_close(out.scores[image, :count].cpu(), scores[image, kept], rtol=0, atol=0)
        assert (out.boxes[image, count:] == 0).all()
        assert (out.scores[image, count:] == 0).all()


# Integer corners, so that the reference's float64 and the op's float32 agree on every comparison.
def crowd(batch: int, count: int, size: float = 60.0) -> Tensor:
    return random_boxes(batch, count, size=size).round()


# One block of candidates, a selection among more boxes, and more candidates than a block holds.
SIZES = [(3, count, 2000) for count in (1, 2, 31, 32, 33, 64, 100, 257, 1000, 1024)]
SIZES += [(2, 1025, 1000), (2, 3000, 1024), (2, 5440, 300), (2, 5440, 1), (2, 2000, 37), (2, 1500, 500)]
SIZES += [(1, 2500, 2500), (2, 1500, 1500), (2, 1500, 1100)]


@pytest.mark.parametrize(("batch", "count", "candidates"), SIZES)
def test_like_the_reference(device: torch.device, batch: int, count: int, candidates: int) -> None:
    boxes = crowd(batch, count, size=300.0 if count > 1024 else 60.0)
    check(boxes, torch.rand(batch, count), device, 0.5, 0.1, candidates, 100)
    # Few distinct scores: the candidates end within a run of ties.
    check(boxes, (torch.rand(batch, count) * 3).round() / 4, device, 0.25, -1.0, candidates, count)
    kinds = torch.randint(-2, 3, (batch, count)) * 2**40
    check(boxes, torch.rand(batch, count), device, 0.3, 0.0, candidates, 150, categories=kinds)


@pytest.mark.parametrize(("count", "candidates"), [(20, 20), (200, 200), (1024, 1024), (1500, 300)])
def test_many_images(device: torch.device, count: int, candidates: int) -> None:
    # A GPU shares few images among several blocks each, and gives each of many one block.
    boxes, scores = crowd(3, count, size=100.0).to(device), torch.rand(3, count).to(device)
    few = padded_nms(boxes, scores, 0.4, 0.1, candidates, 100)
    many = padded_nms(boxes.repeat(50, 1, 1), scores.repeat(50, 1), 0.4, 0.1, candidates, 100)
    for ours, theirs in zip(many, few, strict=True):
        assert torch.equal(ours, theirs.repeat(50, *[1] * (theirs.dim() - 1)))


@pytest.mark.gpu
def test_more_images_than_are_sorted_at_once() -> None:
    boxes, scores = crowd(3, 2100, size=100.0).cuda(), torch.rand(3, 2100).cuda()
    few = padded_nms(boxes, scores, 0.4, 0.1, 1500, 20)
    many = padded_nms(boxes.repeat(700, 1, 1), scores.repeat(700, 1), 0.4, 0.1, 1500, 20)
    for ours, theirs in zip(many, few, strict=True):
        assert torch.equal(ours, theirs.repeat(700, *[1] * (theirs.dim() - 1)))


@pytest.mark.parametrize("box_dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("score_dtype", FLOAT_DTYPES)
def test_dtypes(device: torch.device, box_dtype: torch.dtype, score_dtype: torch.dtype) -> None:
    for count, candidates in ((300, 300), (1300, 400), (1300, 1300)):
        boxes, scores = crowd(2, count).to(box_dtype), torch.rand(2, count).to(score_dtype)
        check(boxes, scores, device, 0.5, 0.25, candidates, 64)


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("scores", "threshold", "expected"),
    [
        # In float32 all these scores would be equal, and index order would decide.
        (0.5 + torch.arange(50, dtype=torch.float64) * 1e-12, 0.0, list(range(49, -1, -1))),
        (torch.tensor([0.0, 0.5, -0.0, 0.5] * 20), -1.0, [*range(1, 80, 2), *range(0, 80, 2)]),  # -0 equals 0
        (torch.tensor([NAN, 0.3, INF, 0.2999]), 0.3, [2, -1, -1, -1]),
    ],
)
def test_boxes_far_apart_are_ordered_by_score(
    device: torch.device, scores: Tensor, threshold: float, expected: list[int]
) -> None:
    count = len(scores)
    boxes = (torch.arange(count)[None, :, None] * 100 + torch.tensor([0.0, 0, 10, 10])).to(scores.dtype)
    out = padded_nms(boxes.to(device), scores[None].to(device), 0.5, threshold, count, count)
    assert out.indices[0].tolist() == expected


@pytest.mark.parametrize(("batch", "count"), [(0, 5), (2, 0), (0, 0), (0, 2000)])
def test_nothing_to_do(device: torch.device, batch: int, count: int) -> None:
    boxes, scores = torch.zeros(batch, count, 4, device=device), torch.zeros(batch, count, device=device)
    out = padded_nms(boxes, scores, 0.5, 0.1, 1500, 7)
    assert out.boxes.shape == (batch, 7, 4)
    assert (out.indices == -1).all()
    assert (out.counts == 0).all()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"boxes": torch.zeros(3, 4)}, RuntimeError, r"boxes must have shape \[B, N, 4\].*got \[3, 4\]"),
        ({"boxes": torch.zeros(1, 3, 4, dtype=torch.int32)}, TypeError, "boxes must be float64.*got Int"),
        ({"scores": torch.zeros(1, 4)}, RuntimeError, r"scores must have shape.*\[1, 3\], got \[1, 4\]"),
        ({"iou_threshold": 1.5}, ValueError, "iou_threshold must be between 0 and 1, got 1.5"),
        ({"score_threshold": float("nan")}, ValueError, "score_threshold must be a number, got NaN"),
        ({"max_candidates": 0}, ValueError, "max_candidates must be at least 1, got 0"),
        ({"max_detections": 0}, ValueError, "max_detections must be at least 1, got 0"),
        ({"categories": torch.zeros(1, 3)}, TypeError, "categories must be int64, got Float"),
        (
            {"categories": torch.zeros(1, 2).long()},
            RuntimeError,
            r"categories must have the shape.*got \[1, 2\]",
        ),
    ],
)
def test_rejects_bad_arguments(change: dict[str, Any], error: type[Exception], message: str) -> None:
    good: dict[str, Any] = {"boxes": torch.zeros(1, 3, 4), "scores": torch.zeros(1, 3)}
    good |= {"iou_threshold": 0.5, "score_threshold": 0.1, "max_candidates": 3, "max_detections": 3}
    with pytest.raises(error, match=message):
        padded_nms(**(good | change))


@pytest.mark.parametrize("kind", ["cpu", "meta", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_candidates_of_an_image_are_limited_on_every_device(kind: str) -> None:
    boxes = torch.zeros(1, 1, 4, device=kind).expand(1, 131_073, 4)
    scores = torch.zeros(1, 1, device=kind).expand(1, 131_073)
    assert padded_nms(boxes, scores, 0.5, 0.1, 1000, 3).boxes.shape == (1, 3, 4)
    for most in (131_073, 1 << 62):
        with pytest.raises(ValueError, match=r"at most 131072 candidates.*got 131073 for boxes of shape"):
            padded_nms(boxes, scores, 0.5, 0.1, most, 3)
    assert padded_nms(boxes[:, 1:], scores[:, 1:], 0.5, 0.1, 1 << 62, 3).boxes.shape == (1, 3, 4)


def test_thresholds_without_values_need_boxes_without_values() -> None:
    boxes, scores = torch.zeros(1, 3, 4), torch.zeros(1, 3)
    threshold = torch.tensor(0.5)
    suppress = torch.ops.lensbox.padded_nms.tensor_thresholds
    for pair in ((threshold.to("meta"), threshold), (threshold, threshold.to("meta"))):
        with pytest.raises(ValueError, match="thresholds must have values for boxes on cpu"):
            suppress(boxes, scores, *pair, 3, 3)
        assert suppress(boxes.to("meta"), scores.to("meta"), *pair, 3, 3)[0].is_meta
