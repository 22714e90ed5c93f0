"""Convolution blocks: a batch norm follows each convolution, and the export folds it into the convolution."""

from torch import Tensor, nn


def conv_norm(inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Return convolution and batch norm: [B, inputs, H, W] -> [B, outputs, H/stride, W/stride]."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
    # Keeps the variance of activations through ReLU (He et al. 2015, arXiv:1502.01852), unlike the default.
    nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


def make_activation(name: str) -> nn.Module:
    """Return the activation of this name, an `Activation` of `config`."""
    return nn.Hardswish(inplace=True) if name == "hardswish" else nn.ReLU(inplace=True)


def separable_conv_norm(
    inputs: int, outputs: int, kernel: int, activation: str, stride: int = 1
) -> nn.Sequential:
    """Return depthwise convolution, activation, and pointwise convolution, without a final activation."""
    return nn.Sequential(
        conv_norm(inputs, inputs, kernel, stride, groups=inputs),
        make_activation(activation),
        conv_norm(inputs, outputs),
    )


def spatial_conv_norm(
    inputs: int, outputs: int, dense: bool, kernel: int, activation: str, stride: int = 1
) -> nn.Sequential:
    """Return a dense 3x3 convolution, or a separable one whose depthwise kernel has side `kernel`."""
    if dense:
        return conv_norm(inputs, outputs, kernel=3, stride=stride)
    return separable_conv_norm(inputs, outputs, kernel, activation, stride)


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
