"""What all rows share: the article's net, its optimizer, and one batch of its random data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lensbox.bench.article.targets import SLOTS
from lensbox.bench.timing import nothing
from lensbox.model import ArticleNet
from lensbox.train.article.random_data import FakeDataset


@dataclass(frozen=True)
class Scale:
    """How large the experiment is.

    channels, hidden: of ArticleNet.
    autocast: whether the net computes in bfloat16.
    compiled: whether it goes through torch.compile.
    """

    batch: int
    channels: tuple[int, int, int, int]
    hidden: int
    autocast: bool
    compiled: bool

    def __str__(self) -> str:
        how = "torch.compile" if self.compiled else "eager"
        return (
            f"batch {self.batch}, {SLOTS} slots a sample; channels {', '.join(map(str, self.channels))}, "
            f"then Linear({self.channels[-1] * 256}, {self.hidden}); {how}, "
            f"{'bf16 autocast' if self.autocast else 'float32'}"
        )


ARTICLE = Scale(1024, (32, 64, 128, 256), 16384, autocast=True, compiled=True)
FOR_A_CPU = Scale(32, (2, 4, 8, 8), 64, autocast=False, compiled=False)


@dataclass(frozen=True)
class Subject:
    """predict: images `[B, 1, 256, 256]` on the device to boxes `[B, SLOTS, 4]`.
    optimizer: its rate is 0. It does all its work, and every step sees the weights of the first.
    images: uint8 on the host, pinned where there is a GPU to copy to.
    boxes: uint8 `[n, 4]` of each sample, on the host.
    """

    device: torch.device
    scale: Scale
    predict: Callable[[Tensor], Tensor]
    optimizer: torch.optim.Optimizer
    images: Tensor
    boxes: list[Tensor]

    @property
    def synchronize(self) -> Callable[[], None]:
        """Waits for the device."""
        return torch.cuda.synchronize if self.device.type == "cuda" else nothing


def make_subject(device: torch.device, scale: Scale, seed: int = 0) -> Subject:
    torch.manual_seed(seed)
    with device:
        net = ArticleNet(scale.channels, scale.hidden, SLOTS)
    net.train()
    call = torch.compile(net, dynamic=False) if scale.compiled else net

    def predict(images: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=scale.autocast):
            boxes: Tensor = call(images)
        return boxes

    data = FakeDataset(scale.batch, SLOTS, seed)
    images, boxes = zip(*(data[index] for index in range(scale.batch)), strict=True)
    stacked = torch.stack(images)
    return Subject(
        device,
        scale,
        predict,
        torch.optim.SGD(net.parameters(), lr=0.0, fused=True),
        stacked.pin_memory() if device.type == "cuda" else stacked,
        [of_sample.to(torch.uint8) for of_sample in boxes],
    )
