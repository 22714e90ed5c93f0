"""Convolution blocks: each convolution is followed by batch norm, which folds into it once frozen."""

import torch
from torch import Tensor, nn


def conv_norm(inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution and batch norm: [B, inputs, H, W] -> [B, outputs, H/stride, W/stride]; no activation."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
    # Keeps the variance of activations through ReLU (He et al. 2015, arXiv:1502.01852); the default does not.
    nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


def separable_conv_norm(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """Depthwise convolution, ReLU, pointwise convolution; without activation at the end."""
    return nn.Sequential(
        conv_norm(inputs, inputs, kernel, stride, groups=inputs),
        nn.ReLU(inplace=True),
        conv_norm(inputs, outputs),
    )


def spatial_conv_norm(inputs: int, outputs: int, dense: bool, kernel: int, stride: int = 1) -> nn.Sequential:
    """A dense 3x3 convolution, or a separable one whose depthwise kernel has side `kernel`."""
    if dense:
        return conv_norm(inputs, outputs, kernel=3, stride=stride)
    return separable_conv_norm(inputs, outputs, kernel, stride)


def conv_norm_relu(inputs: int, outputs: int, dense: bool, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    """`spatial_conv_norm` with ReLU behind it."""
    return nn.Sequential(spatial_conv_norm(inputs, outputs, dense, kernel, stride), nn.ReLU(inplace=True))


class ResidualBlock(nn.Module):
    """relu(x + conv(x)); shapes [B, width, H, W] -> the same."""

    def __init__(self, width: int, dense: bool, kernel: int) -> None:
        super().__init__()
        self.conv = spatial_conv_norm(width, width, dense, kernel)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.conv(x))
