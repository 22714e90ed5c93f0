"""Boxes, scores and categories on which the rules of `padded_nms` matter."""

import torch
from torch import Tensor

COUNT = 40


def problem(seed: int, batch: int) -> Tensor:
    """Side by side, float32 [batch, 40, 6]: boxes at whole pixels, some inverted; scores of which many are
    equal and some NaN; odd categories."""
    generator = torch.Generator().manual_seed(seed)
    boxes = torch.randint(0, 24, (batch, COUNT, 4), generator=generator).float()
    boxes[..., 2:] += torch.randint(0, 12, (batch, COUNT, 2), generator=generator)
    scores = torch.randint(0, 12, (batch, COUNT, 1), generator=generator) / 10
    scores[:, ::9] = torch.nan
    labels = torch.tensor([-7.0, 0.0, 3.0, 100_000.0])
    categories = labels[torch.randint(0, 4, (batch, COUNT, 1), generator=generator)]
    return torch.cat([boxes, scores, categories], dim=2)
