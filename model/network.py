"""The network of the face detector: backbone, feature pyramid and heads, anchors and decoded predictions.

A batch norm follows each convolution, and the export folds it into the convolution.
"""

import torch
import torch.nn.functional as F  # noqa: N812 (the name every torch user knows)
from torch import Tensor, nn

from lensbox.model.config import DetectorConfig

# One feature map per stride, finest first.
Levels = tuple[Tensor, Tensor, Tensor, Tensor]

# Initialisation of focal loss (Lin et al. 2017, arXiv:1708.02002, section 4.1): about one cell of a hundred
# has a face. With logit(0.01) = -4.6 the first steps need not learn that faces are rare.
PRIOR_LOGIT = -4.6


def conv_norm(inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Return convolution and batch norm: [B, inputs, H, W] -> [B, outputs, H/stride, W/stride]."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
    # Keeps the variance of activations through ReLU (He et al. 2015, arXiv:1502.01852), unlike the default.
    nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


def make_activation(name: str) -> nn.Module:
    """Return the activation of this name, an `Activation` of `config`."""
    return nn.Hardswish(inplace=True) if name == "hardswish" else nn.ReLU(inplace=True)


def spatial_conv_norm(
    inputs: int, outputs: int, dense: bool, kernel: int, activation: str, stride: int = 1
) -> nn.Sequential:
    """Return a dense 3x3 convolution, or a depthwise one of side `kernel`, activation and a pointwise one."""
    if dense:
        return conv_norm(inputs, outputs, kernel=3, stride=stride)
    depthwise = conv_norm(inputs, inputs, kernel, stride, groups=inputs)
    return nn.Sequential(depthwise, make_activation(activation), conv_norm(inputs, outputs))


def conv_norm_act(
    inputs: int, outputs: int, dense: bool, activation: str, kernel: int = 3, stride: int = 1
) -> nn.Sequential:
    """Return `spatial_conv_norm` followed by its activation."""
    conv = spatial_conv_norm(inputs, outputs, dense, kernel, activation, stride)
    return nn.Sequential(conv, make_activation(activation))


class ResidualBlock(nn.Module):
    """Compute activation(x + conv(x)), [B, width, H, W] -> the same shape."""

    def __init__(self, width: int, dense: bool, kernel: int, activation: str) -> None:
        super().__init__()
        self.conv = spatial_conv_norm(width, width, dense, kernel, activation)
        self.activation = make_activation(activation)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.activation(x + self.conv(x))
        return y


class Backbone(nn.Module):
    """Map canvases [B, 1, H, W] to features at strides 4, 8, 16, 32 with `config.widths` channels."""

    def __init__(self, config: DetectorConfig) -> None:
        super().__init__()
        self.stem = conv_norm_act(1, config.stem_width, True, config.activation, stride=2)
        inputs = (config.stem_width, *config.widths[:3])
        stages = [_stage(config, level, inputs[level]) for level in range(len(inputs))]
        self.stage4, self.stage8, self.stage16, self.stage32 = stages

    def forward(self, x: Tensor) -> Levels:
        c4 = self.stage4(self.stem(x))
        c8 = self.stage8(c4)
        c16 = self.stage16(c8)
        return c4, c8, c16, self.stage32(c16)


class FeaturePyramid(nn.Module):
    """Top-down feature pyramid (Lin et al. 2017, arXiv:1612.03144), with residual blocks at each level.

    Map four feature maps, finest first, to four with `config.pyramid_width` channels each.
    """

    def __init__(self, config: DetectorConfig) -> None:
        super().__init__()
        laterals = [conv_norm(inputs, config.pyramid_width) for inputs in config.widths]
        self.lateral4, self.lateral8, self.lateral16, self.lateral32 = laterals
        width, act = config.pyramid_width, config.activation
        blocks = [
            nn.Sequential(*(ResidualBlock(width, False, kernel, act) for _ in range(depth)))
            for kernel, depth in zip(config.depthwise_kernels, config.pyramid_depths, strict=True)
        ]
        self.blocks4, self.blocks8, self.blocks16, self.blocks32 = blocks

    def forward(self, features: Levels) -> Levels:
        c4, c8, c16, c32 = features
        p32 = self.blocks32(self.lateral32(c32))
        p16 = self.blocks16(self.lateral16(c16) + _double(p32))
        p8 = self.blocks8(self.lateral8(c8) + _double(p16))
        p4 = self.blocks4(self.lateral4(c4) + _double(p8))
        return p4, p8, p16, p32


def _stage(config: DetectorConfig, level: int, inputs: int) -> nn.Sequential:
    width = config.widths[level]
    kernel = config.depthwise_kernels[level]
    act = config.activation
    blocks = [ResidualBlock(width, config.dense[level], kernel, act) for _ in range(config.depths[level])]
    downsampling = conv_norm_act(inputs, width, config.dense_downsampling[level], act, kernel, stride=2)
    return nn.Sequential(downsampling, *blocks)


def _double(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2.0, mode="nearest")


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
        centers.append(torch.cartesian_prod(axis, axis).flip(1))
        cell_strides.append(torch.full((axis.numel() ** 2,), float(stride)))
    return torch.cat(centers), torch.cat(cell_strides)


def decode_boxes(raw: Tensor, centers: Tensor, strides: Tensor) -> Tensor:
    """Return boxes whose sides lie exp(raw) * stride from the anchor's centre.

    The exponential is FCOS's (Tian et al. 2019, arXiv:1904.01355): equal steps of raw are equal ratios of
    size.

    raw: float32 [B, A, 4] in the order left, top, right, bottom.
    centers, strides: [A, 2] and [A], pixels.
    Returns float32 [B, A, 4], xyxy in canvas pixels, not clipped.
    """
    # exp(5) cells of stride 32 are 4,700 px, more than any face on the canvas; larger values could overflow.
    distances = raw.clamp(max=5.0).exp() * strides[:, None]
    return torch.cat((centers - distances[..., :2], centers + distances[..., 2:]), dim=-1)


def mirror_predictions(predictions: Tensor, sides: list[int]) -> Tensor:
    """Return the predictions for canvases whose mirror images have these predictions.

    predictions: float32 [B, A, 5], the levels' cells one after the other, row-major.
    sides: number of cells in a row of each level.
    """
    levels = []
    for level, side in zip(predictions.split([side * side for side in sides], dim=1), sides):  # noqa: B905
        grid = level.unflatten(1, [side, side]).flip(2)  # TorchScript's zip takes no `strict`
        logit, left, top, right, bottom = grid.flatten(1, 2).unbind(2)
        levels.append(torch.stack((logit, right, top, left, bottom), dim=2))
    return torch.cat(levels, dim=1)
