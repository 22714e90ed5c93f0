"""Backbone and feature pyramid: from the canvas to one feature map per stride."""

import torch.nn.functional as F  # noqa: N812 (the name every torch user knows)
from torch import Tensor, nn

from lensbox.model.blocks import ResidualBlock, conv_norm, conv_norm_act
from lensbox.model.config import DetectorConfig

# One feature map per stride, finest first.
Levels = tuple[Tensor, Tensor, Tensor, Tensor]


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
        laterals = [conv_norm(width, config.pyramid_width) for width in config.widths]
        self.lateral4, self.lateral8, self.lateral16, self.lateral32 = laterals
        blocks = [_pyramid_blocks(config, level) for level in range(len(laterals))]
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


def _pyramid_blocks(config: DetectorConfig, level: int) -> nn.Sequential:
    width, kernel = config.pyramid_width, config.depthwise_kernels[level]
    depth = config.pyramid_depths[level]
    return nn.Sequential(*(ResidualBlock(width, False, kernel, config.activation) for _ in range(depth)))


def _double(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2.0, mode="nearest")
