"""White ellipses that stand for faces, and the box around bright pixels."""

from collections.abc import Sequence

import torch
from torch import Tensor

from lensbox.model.config import CANVAS_SIZE


def ellipse(box: Sequence[float], width: int = CANVAS_SIZE, height: int = CANVAS_SIZE) -> Tensor:
    """White inside the ellipse that fills the box, float32 [height, width]."""
    x, y = torch.arange(width) + 0.5, torch.arange(height) + 0.5
    x1, y1, x2, y2 = box
    across = ((x - (x1 + x2) / 2) / ((x2 - x1) / 2)) ** 2
    down = ((y - (y1 + y2) / 2) / ((y2 - y1) / 2)) ** 2
    return 255 * (across[None] + down[:, None] <= 1).float()


def bounds(mask: Tensor) -> Tensor:
    """Return the box around the pixels that are set, float32 [4]."""
    rows, columns = mask.any(1).nonzero(), mask.any(0).nonzero()
    return torch.cat([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]).float()
