import pytest
import torch
from torch import Tensor

from lensbox.model.config import STRIDES
from lensbox.model.head import make_anchors
from lensbox.ops import box_iou
from lensbox.train.loss.assignment import TOP_CELLS, assign, candidate_cells, ignored_cells

CENTERS, _ = make_anchors(256, STRIDES)
CELLS = 64**2 + 32**2 + 16**2 + 8**2


def test_candidates_are_the_cells_around_the_centre_on_fitting_levels() -> None:
    # 20 px: stride 4 (0 to 24) and stride 8 (14 to 52).
    targets = torch.tensor([[[100.0, 60.0, 120.0, 80.0], [0, 0, 0, 0]]])
    cells, allowed, closeness = candidate_cells(targets)
    assert cells.shape == (1, 2, 36)
    assert allowed[0, 0].tolist() == [True] * 18 + [False] * 18
    assert not allowed[0, 1].any()
    position = CENTERS[cells[0, 0, allowed[0, 0]]]
    assert (position[:9] - torch.tensor([110.0, 70.0])).abs().max() <= 6
    assert (position[9:] - torch.tensor([110.0, 70.0])).abs().max() <= 12
    assert cells[0, 0, 4] == (70 // 4) * 64 + 110 // 4
    assert closeness[0, 0, :9].argmax() == 4


@pytest.mark.parametrize("size", [1.0, 4.5, 6.0, 13.9, 24.0, 36.0, 52.0, 76.0, 112.0, 255.0])
def test_every_size_has_candidates_on_the_canvas(size: float) -> None:
    cells, allowed, _ = candidate_cells(torch.tensor([[[0.0, 0.0, size, size]]]))
    assert allowed.any()
    assert bool(((cells >= 0) & (cells < CELLS)).all())
    if size == 6:
        assert int(allowed.sum()) == 4  # of the 3x3 cells around the corner cell


def predictions(batch: int = 1) -> tuple[Tensor, Tensor]:
    middle = CENTERS
    boxes = torch.cat([middle - 8, middle + 8], 1).expand(batch, -1, -1).clone()
    return boxes, torch.full((batch, CELLS), -2.0)


def test_the_best_prediction_has_the_iou_of_its_box_as_quality() -> None:
    boxes, logits = predictions()
    target = torch.tensor([100.0, 60.0, 120.0, 80.0])
    cell = 17 * 64 + 27
    boxes[0, cell] = torch.tensor([101.0, 60.0, 120.0, 80.0])
    pairs = assign(boxes, logits, target[None, None])
    assert int(pairs.positive.sum()) == TOP_CELLS
    best = pairs.quality[0, 0].argmax()
    assert pairs.cells[0, 0, best] == cell
    torch.testing.assert_close(pairs.quality.max(), box_iou(boxes[0, cell][None], target[None])[0, 0])
    # Quality of every other pair: (s^a u^b) / (best) * best IoU, here with equal scores.
    other = pairs.cells[0, 0, 1]
    iou = box_iou(boxes[0, other][None], target[None])[0, 0]
    expected = (iou / 0.95) ** 4 * 0.95
    torch.testing.assert_close(pairs.quality[0, 0, 1], expected, atol=1e-4, rtol=0)


def test_higher_score_wins_between_equal_boxes() -> None:
    boxes, logits = predictions()
    target = torch.tensor([[[100.0, 60.0, 120.0, 80.0]]])
    cells, allowed, _ = candidate_cells(target)
    favourite = int(cells[0, 0, 3])
    boxes[0, cells[0, 0, allowed[0, 0]]] = target[0, 0]
    logits[0, favourite] = 2.0
    pairs = assign(boxes, logits, target)
    assert pairs.cells[0, 0, pairs.quality[0, 0].argmax()] == favourite
    assert pairs.quality.max() == 1


def test_a_wanted_cell_goes_to_the_box_it_fits_better() -> None:
    boxes, logits = predictions()
    near = torch.tensor([100.0, 60.0, 120.0, 80.0])
    far = torch.tensor([102.0, 61.0, 126.0, 83.0])
    cells, allowed, _ = candidate_cells(torch.stack([near, far])[None])
    shared = set(cells[0, 0, allowed[0, 0]].tolist()) & set(cells[0, 1, allowed[0, 1]].tolist())
    assert shared
    for cell in shared:
        boxes[0, cell] = near
    pairs = assign(boxes, logits, torch.stack([near, far])[None])
    owners = [set(pairs.cells[0, i, pairs.positive[0, i]].tolist()) for i in range(2)]
    assert not owners[0] & owners[1]
    assert owners[0] & shared
    assert bool((pairs.quality[~pairs.positive] == 0).all())


def test_unused_slots_are_never_positive() -> None:
    boxes, logits = predictions(2)
    pairs = assign(boxes, logits, torch.zeros(2, 5, 4))
    assert pairs.cells.shape == (2, 5, TOP_CELLS)
    assert not pairs.positive.any()
    assert pairs.quality.abs().sum() == 0


def test_no_overlap_yet_still_assigns_the_nearest_cells() -> None:
    boxes, logits = predictions()
    boxes = torch.zeros_like(boxes)
    pairs = assign(boxes, logits, torch.tensor([[[100.0, 60.0, 120.0, 80.0]]]))
    assert int(pairs.positive.sum()) == TOP_CELLS
    assert (17 * 64 + 27) in pairs.cells[0, 0].tolist()


def test_ignored_cells_by_hand() -> None:
    ignored = torch.tensor([[[8.0, 8.0, 40.0, 24.0], [101.0, 101.0, 103.0, 103.0], [0, 0, 0, 0]]])
    mask = ignored_cells(ignored)[0]
    middle = CENTERS
    inside = (middle >= ignored[0, 0, :2]).all(1) & (middle <= ignored[0, 0, 2:]).all(1)
    expected = inside.clone()
    expected[25 * 64 + 25] = True  # the stride-4 cell of the centre (102, 102), which is its own centre
    assert torch.equal(mask > 0, expected)
