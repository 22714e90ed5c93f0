import pytest
import torch
from torch import Tensor

from lensbox.model.config import STRIDES
from lensbox.model.network import make_anchors
from lensbox.ops import box_iou
from lensbox.train.loss.assignment import TOP_CELLS, Assignment, assign, candidate_cells, ignored_cells

CENTERS, _ = make_anchors(256, STRIDES)
CELLS = 64**2 + 32**2 + 16**2 + 8**2
TARGET = torch.tensor([100.0, 60.0, 120.0, 80.0])
CENTER_CELL = (70 // 4) * 64 + 110 // 4  # of the target, at stride 4


def test_candidates_are_the_cells_around_the_centre_on_fitting_levels() -> None:
    # 20 px: stride 4 (0 to 24) and stride 8 (14 to 52).
    cells, allowed, closeness = candidate_cells(torch.stack([TARGET, torch.zeros(4)])[None])
    assert cells.shape == (1, 2, 36)
    assert allowed[0, 0].tolist() == [True] * 18 + [False] * 18
    assert not allowed[0, 1].any()
    away = (CENTERS[cells[0, 0, allowed[0, 0]]] - torch.tensor([110.0, 70.0])).abs()
    assert away[:9].max() <= 6
    assert away[9:].max() <= 12
    assert cells[0, 0, 4] == CENTER_CELL
    assert closeness[0, 0, :9].argmax() == 4


@pytest.mark.parametrize("size", [1.0, 6.0, 24.0, 52.0, 112.0, 255.0])
def test_every_size_has_candidates_on_the_canvas(size: float) -> None:
    cells, allowed, _ = candidate_cells(torch.tensor([[[0.0, 0.0, size, size]]]))
    assert allowed.any()
    assert bool(((cells >= 0) & (cells < CELLS)).all())
    if size == 6:
        assert int(allowed.sum()) == 4  # of the 3x3 cells around the corner cell


def assigned(
    *targets: Tensor, boxes: dict[int, Tensor] | None = None, favourite: int | None = None
) -> Assignment:
    """Assign squares of 16 px around cells, or these boxes. favourite: the cell with the highest score."""
    predicted, logits = torch.cat([CENTERS - 8, CENTERS + 8], 1)[None], torch.full((1, CELLS), -2.0)
    for cell, box in (boxes or {}).items():
        predicted[0, cell] = box
    if favourite is not None:
        logits[0, favourite] = 2.0
    return assign(predicted, logits, torch.stack(targets)[None])


def candidates(*targets: Tensor) -> list[list[int]]:
    cells, allowed, _ = candidate_cells(torch.stack(targets)[None])
    return [cells[0, slot, allowed[0, slot]].tolist() for slot in range(len(targets))]


def test_the_best_prediction_has_the_iou_of_its_box_as_quality() -> None:
    best = torch.tensor([101.0, 60.0, 120.0, 80.0])
    pairs = assigned(TARGET, boxes={CENTER_CELL: best})
    assert int(pairs.positive.sum()) == TOP_CELLS
    assert pairs.cells[0, 0, pairs.quality[0, 0].argmax()] == CENTER_CELL
    torch.testing.assert_close(pairs.quality.max(), box_iou(best[None], TARGET[None])[0, 0])
    # Quality of every other pair: (s^a u^b) / (best) * best IoU, here with equal scores.
    middle = CENTERS[pairs.cells[0, 0, 1]]
    iou = box_iou(torch.cat([middle - 8, middle + 8])[None], TARGET[None])[0, 0]
    torch.testing.assert_close(pairs.quality[0, 0, 1], (iou / 0.95) ** 4 * 0.95, atol=1e-4, rtol=0)


def test_higher_score_wins_between_equal_boxes() -> None:
    (cells,) = candidates(TARGET)
    pairs = assigned(TARGET, boxes=dict.fromkeys(cells, TARGET), favourite=cells[3])
    assert pairs.cells[0, 0, pairs.quality[0, 0].argmax()] == cells[3]
    assert pairs.quality.max() == 1


def test_a_wanted_cell_goes_to_the_box_it_fits_better() -> None:
    far = torch.tensor([102.0, 61.0, 126.0, 83.0])
    one, other = candidates(TARGET, far)
    shared = set(one) & set(other)
    assert shared
    pairs = assigned(TARGET, far, boxes=dict.fromkeys(shared, TARGET))
    owners = [set(pairs.cells[0, i, pairs.positive[0, i]].tolist()) for i in range(2)]
    assert not owners[0] & owners[1]
    assert owners[0] & shared
    assert bool((pairs.quality[~pairs.positive] == 0).all())


def test_ignored_cells_by_hand() -> None:
    ignored = torch.tensor([[[8.0, 8.0, 40.0, 24.0], [101.0, 101.0, 103.0, 103.0], [0, 0, 0, 0]]])
    expected = (ignored[0, 0, :2] <= CENTERS).all(1) & (ignored[0, 0, 2:] >= CENTERS).all(1)
    expected[25 * 64 + 25] = True  # the stride-4 cell of the centre (102, 102), which is its own centre
    assert torch.equal(ignored_cells(ignored)[0] > 0, expected)
