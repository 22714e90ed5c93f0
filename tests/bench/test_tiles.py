"""`lensbox bench tiles`: mosaics are cut back into the cells that they were made of."""

import numpy as np
import pytest
import torch

from lensbox.bench.tiles import benchmark
from lensbox.runtime import Detections


def test_a_mosaic_holds_each_canvas_in_its_cell() -> None:
    canvases = torch.randint(0, 256, (144, 1, 5, 7), dtype=torch.uint8)
    pixels = benchmark.mosaic(canvases)
    assert pixels.shape == (1, 45, 112)
    assert torch.equal(pixels[:, 5:10, 14:21], canvases[18])  # second row, third column


def test_boxes_belong_to_the_cell_of_their_centre() -> None:
    boxes = torch.tensor([[4.0, 1.0, 8.0, 4.0], [13.0, 4.0, 19.0, 8.0]])
    cells = benchmark.by_cell(Detections(boxes, torch.tensor([0.5, 0.9])), 7, 5)
    assert [index for index, cell in enumerate(cells) if len(cell.boxes)] == [0, 18]
    np.testing.assert_array_equal(cells[0].boxes, [[4, 1, 8, 4]])
    np.testing.assert_array_equal(cells[18].boxes, [[-1, -1, 5, 3]])
    assert cells[18].scores == pytest.approx([0.9])
