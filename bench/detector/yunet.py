"""YuNet-n, a published face detector of about the same kind, as a yardstick for time.

Wu, Peng, Yu: "YuNet: A Tiny Millisecond-level Face Detector", Machine Intelligence Research 20 (2023),
656-665, doi:10.1007/s11633-023-1423-y; the layout follows the configuration yunet_n in
https://github.com/ShiqiYu/libfacedetection.train. Written anew from that description, with random weights:
only its time is used, never its answers.
"""

import torch.nn.functional as F  # noqa: N812 (the name every torch user knows)
from torch import Tensor, nn

PUBLISHED_PARAMETERS = 75_856  # abstract of the paper

_WIDTH = 64
_STEM_WIDTH = 16
_LEVELS = 3  # strides 8, 16, 32
# What is predicted at each cell: a class, whether an object is there, a box, five landmarks.
_PREDICTIONS = {"cls": 1, "obj": 1, "bbox": 4, "kps": 10}

OUTPUTS = tuple(f"{name}_{8 << level}" for name in _PREDICTIONS for level in range(_LEVELS))


class _Unit(nn.Sequential):
    """A pointwise and then a depthwise 3x3 convolution, with bias; batch norm and ReLU unless `plain`."""

    def __init__(self, inputs: int, outputs: int, plain: bool = False) -> None:
        layers: list[nn.Module] = [
            nn.Conv2d(inputs, outputs, 1),
            nn.Conv2d(outputs, outputs, 3, padding=1, groups=outputs),
        ]
        super().__init__(*layers if plain else (*layers, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)))


class YuNet(nn.Module):
    """[B, 3, H, W], H and W multiples of 32 -> for each of `_PREDICTIONS`, three levels, finest first:
    [B, cells, values]. Sigmoids of classes and objects are part of it, decoding of boxes is not."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, _STEM_WIDTH, 3, stride=2, padding=1),
            nn.BatchNorm2d(_STEM_WIDTH),
            nn.ReLU(inplace=True),
            _Unit(_STEM_WIDTH, _STEM_WIDTH),
        )
        self.stage4 = nn.Sequential(_stage(_STEM_WIDTH), _stage(_WIDTH))
        self.stages = nn.ModuleList(_stage(_WIDTH) for _ in range(_LEVELS))
        self.laterals = nn.ModuleList(_Unit(_WIDTH, _WIDTH) for _ in range(_LEVELS))
        self.shared = nn.ModuleList(_Unit(_WIDTH, _WIDTH) for _ in range(_LEVELS))
        self.heads = nn.ModuleDict(
            {
                name: nn.ModuleList(_Unit(_WIDTH, values, plain=True) for _ in range(_LEVELS))
                for name, values in _PREDICTIONS.items()
            }
        )

    def forward(self, images: Tensor) -> list[Tensor]:
        x = self.stage4(F.max_pool2d(self.stem(images), 2))
        levels = []
        for stage in self.stages:
            x = stage(F.max_pool2d(x, 2))
            levels.append(x)
        # Top-down: each level is smoothed, then added to the next finer one.
        for level in reversed(range(_LEVELS)):
            levels[level] = self.laterals[level](levels[level])
            if level > 0:
                coarse = F.interpolate(levels[level], scale_factor=2.0, mode="nearest")
                levels[level - 1] = levels[level - 1] + coarse
        levels = [unit(x) for unit, x in zip(self.shared, levels, strict=True)]
        predictions = []
        for name, head in self.heads.items():
            assert isinstance(head, nn.ModuleList)
            for unit, x in zip(head, levels, strict=True):
                values = unit(x).flatten(2).transpose(1, 2)
                predictions.append(values.sigmoid() if name in ("cls", "obj") else values)
        return predictions


def _stage(inputs: int) -> nn.Sequential:
    return nn.Sequential(_Unit(inputs, inputs), _Unit(inputs, _WIDTH))
