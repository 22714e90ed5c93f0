"""The head of one pyramid level."""

import torch
from torch import Tensor, nn

from lensbox.model.blocks import conv_norm_act

# Focal loss's initialisation (Lin et al. 2017, arXiv:1708.02002, section 4.1): with a face in about one cell
# of a hundred, logit(0.01) = -4.6 keeps the first steps from being spent on learning that faces are rare.
PRIOR_LOGIT = -4.6


class Head(nn.Module):
    """[B, width, H, W] -> float32 [B, H*W, 5]: one logit and the raw distances left, top, right, bottom."""

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
        # float32 before anything else: a coordinate of 200 px in bfloat16 would be rounded to a whole pixel.
        prediction: Tensor = self.prediction(self.conv(x))
        return prediction.float().flatten(2).transpose(1, 2)
