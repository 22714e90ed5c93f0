"""The head of a pyramid level, its anchors, and the decoding of its predictions."""

import torch
from torch import Tensor, nn

from lensbox.model.backbone import conv_norm_act

# Initialisation of focal loss (Lin et al. 2017, arXiv:1708.02002, section 4.1): about one cell of a hundred
# has a face. With logit(0.01) = -4.6 the first steps need not learn that faces are rare.
PRIOR_LOGIT = -4.6


class Head(nn.Module):
    """Map [B, width, H, W] to float32 [B, H*W, 5]: a logit and the raw distances left, top, right, bottom."""

    def __init__(self, width: int, dense: bool, activation: str) -> None:
        super().__init__()
        self.conv = conv_norm_act(width, width, dense, activation)
        self.prediction = nn.Conv2d(width, 5, kernel_size=1)
        nn.init.normal_(self.prediction.weight, std=0.01)
        assert self.prediction.bias is not None
        nn.init.zeros_(self.prediction.bias)
        with torch.no_grad():
            self.prediction.bias[0] = PRIOR_LOGIT

    def forward(self, x: Tensor) -> Tensor:
        # float32 first: bfloat16 would round a coordinate of 200 px to a whole pixel.
        prediction: Tensor = self.prediction(self.conv(x))
        return prediction.float().flatten(2).transpose(1, 2)


def make_anchors(canvas_size: int, strides: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return an anchor at the centre of every cell, level by level, row-major.

    The result is centers, float32 [A, 2] (x, y in canvas pixels), and strides, float32 [A] (pixels).
    """
    centers, cell_strides = [], []
    for stride in strides:
        axis = (torch.arange(canvas_size // stride, dtype=torch.float32) + 0.5) * stride
        y, x = torch.meshgrid(axis, axis, indexing="ij")
        centers.append(torch.stack((x, y), dim=-1).reshape(-1, 2))
        cell_strides.append(torch.full((axis.numel() ** 2,), float(stride)))
    return torch.cat(centers), torch.cat(cell_strides)


def decode_boxes(raw: Tensor, centers: Tensor, strides: Tensor) -> Tensor:
    """Return boxes whose sides lie exp(raw) * stride from the anchor's centre.

    The exponential is FCOS's (Tian et al. 2019, arXiv:1904.01355): equal steps of raw are equal ratios of
    size.

    Args:
        raw: float32 [B, A, 4] in the order left, top, right, bottom.
        centers, strides: [A, 2] and [A], pixels.

    Returns:
        float32 [B, A, 4], xyxy in canvas pixels, not clipped.
    """
    # exp(5) cells of stride 32 are 4,700 px, more than any face on the canvas; larger values could overflow.
    distances = raw.clamp(max=5.0).exp() * strides[:, None]
    return torch.cat((centers - distances[..., :2], centers + distances[..., 2:]), dim=-1)


def mirror_predictions(predictions: Tensor, sides: list[int]) -> Tensor:
    """Return the predictions for canvases whose mirror images have these predictions.

    Args:
        predictions: float32 [B, A, 5], the levels' cells one after the other, row-major.
        sides: number of cells in a row of each level.
    """
    levels = []
    for level, side in zip(predictions.split([side * side for side in sides], dim=1), sides):  # noqa: B905
        grid = level.unflatten(1, [side, side]).flip(2)  # TorchScript's zip takes no `strict`
        logit, left, top, right, bottom = grid.flatten(1, 2).unbind(2)
        levels.append(torch.stack((logit, right, top, left, bottom), dim=2))
    return torch.cat(levels, dim=1)
