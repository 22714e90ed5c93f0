"""The network of a training: it finds squares of three colors, which stand for three classes."""

from torch import Tensor, nn


class Network(nn.Module):
    """Images [B, 3, H, W] from 0 to 1 -> scores before the sigmoid, [B, 3, h, w], one every 4 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.maps = nn.Conv2d(3, 3, kernel_size=32, stride=4)

    def forward(self, images: Tensor) -> Tensor:
        return self.maps(images)
