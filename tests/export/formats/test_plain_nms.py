"""`padded_nms` in operators of ATen alone against the op itself: the same to the bit."""

import pytest
import torch
from suppression_problems import COUNT, problem
from torch import Tensor, nn

from lensbox.common.errors import ArtifactError
from lensbox.export.formats.plain_nms import plain_padded_nms
from lensbox.export.graph import NMS, TensorThresholds, decomposed, nms_as, trace

INF = float("inf")
PLAIN = nms_as(plain_padded_nms, "plain operators")
THRESHOLDS = ((0.5, 0.5), (0.05, 0.3), (-INF, 1.0), (0.0, 0.0), (1.0, 0.5), (2.0, 0.5))  # of scores and IoU


def assert_the_same(
    boxes: Tensor,
    scores: Tensor,
    thresholds: tuple[float, float],
    candidates: int,
    slots: int,
    categories: Tensor | None = None,
) -> int:
    """Returns how many boxes were kept."""
    arguments = boxes, scores, thresholds[1], thresholds[0], candidates, slots, categories
    expected = torch.ops.lensbox.padded_nms(*arguments)
    numbers = (torch.tensor(value, dtype=torch.float64) for value in thresholds[::-1])
    found = PLAIN(boxes, scores, *numbers, candidates, slots, categories)
    for name, value, wanted in zip(("boxes", "scores", "indices", "counts"), found, expected, strict=True):
        torch.testing.assert_close(
            value, wanted, rtol=0, atol=0, equal_nan=True, msg=f"{name}, thresholds {thresholds}"
        )
    return int(expected[3].sum())


@pytest.mark.parametrize("by_category", [False, True], ids=["one kind", "categories"])
@pytest.mark.parametrize(
    ("candidates", "slots"), [(COUNT, COUNT), (17, 5), (1000, 64), (COUNT, 25), (13, 6), (1, 1)]
)
def test_keeps_what_the_op_keeps(candidates: int, slots: int, by_category: bool) -> None:
    kept = 0
    for seed in range(6):
        for batch in (1, 3):
            images = problem(seed, batch)
            categories = images[..., 5].long() if by_category else None
            for thresholds in THRESHOLDS:
                kept += assert_the_same(
                    images[..., :4], images[..., 4], thresholds, candidates, slots, categories
                )
    assert kept > 40


def test_a_chain_in_which_each_decides_on_the_next() -> None:
    """Every second one stays, which no fixed number of rounds over all boxes finds out."""
    left = torch.arange(200.0)[:, None] * 4
    boxes = torch.cat([left, torch.zeros(200, 1), left + 10, torch.full((200, 1), 10.0)], 1)[None]
    scores = torch.linspace(1.0, 0.5, 200)[None]
    assert assert_the_same(boxes, scores, (0.1, 0.4), 200, 200) == 100
    assert assert_the_same(boxes, scores, (0.1, 0.4), 150, 60) == 60


def test_equal_scores_at_the_edge_of_the_candidates() -> None:
    scores = torch.tensor([[0.5, 0.9, 0.5, 0.5, 0.2, 0.5], [0.1, 0.1, 0.1, 0.1, 0.1, 0.1]])
    boxes = torch.arange(48.0).view(2, 6, 4) * 100
    for candidates in range(1, 7):
        assert assert_the_same(boxes, scores, (0.05, 0.5), candidates, candidates) == 2 * candidates


def test_scores_and_boxes_that_are_no_numbers_or_endless() -> None:
    boxes, scores = problem(3, 4)[..., :4], problem(4, 4)[..., 4]
    scores[:, 3], scores[:, 5] = INF, -INF
    boxes[:, 7, 2], boxes[:, 8] = INF, torch.nan
    boxes[:, 9] = torch.tensor([-INF, -INF, INF, INF])
    assert assert_the_same(boxes, scores, (0.1, 0.3), 30, 20) > 20


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_shorter_dtypes(dtype: torch.dtype) -> None:
    images = problem(5, 3).to(dtype)
    assert assert_the_same(images[..., :4], images[..., 4], (0.3, 0.4), 20, 10) > 10


class _Suppression(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, images: Tensor, score_threshold: Tensor, iou_threshold: Tensor) -> tuple[Tensor, ...]:
        with TensorThresholds():
            found: tuple[Tensor, ...] = torch.ops.lensbox.padded_nms(
                images[..., :4].to(self.dtype),
                images[..., 4],
                iou_threshold,
                score_threshold,
                20,
                10,
            )
        return found


def _plain(module: nn.Module) -> torch.export.ExportedProgram:
    table = torch.export.default_decompositions()
    table[NMS] = PLAIN
    return decomposed(trace(module, problem(0, 2), (0.4, 0.5)), table)


def test_a_graph_takes_any_batch_and_thresholds() -> None:
    program = _plain(_Suppression(torch.float32))
    names = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert not any("lensbox" in name or "nonzero" in name or "sort" in name for name in names)
    module = program.module()
    for batch in (1, 5):
        images = problem(batch, batch)
        for score, overlap in THRESHOLDS:
            expected = torch.ops.lensbox.padded_nms(images[..., :4], images[..., 4], overlap, score, 20, 10)
            found = module(images, torch.tensor(score), torch.tensor(overlap))
            assert all(map(torch.equal, found, expected))


def test_double_precision_is_refused() -> None:
    with pytest.raises(ArtifactError, match=r"at most 32 bits, for plain operators, got torch\.float64"):
        _plain(_Suppression(torch.float64))
