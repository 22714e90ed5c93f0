"""The settings of a run on the article's toy, see `docs/article.md`, and its random data."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import torch
from pydantic import Strict
from pydantic.dataclasses import dataclass
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from lensbox.model.config import CANVAS_SIZE
from lensbox.ops import PackedTargets, collate_packed
from lensbox.train.errors import ConfigError
from lensbox.train.settings import STRICT, Count, CountOrNone, Positive, Seed, checked


@dataclass(frozen=True, config=STRICT)
class ArticleConfig:
    """Everything that decides a run besides its device.

    The article's own net has the channels 32, 64, 128 and 256 and 16384 hidden values; its batches hold 1024.
    """

    seed: Seed = 0
    channels: Annotated[tuple[Count, Count, Count, Count], Strict(False)] = (2, 4, 8, 8)
    hidden: Count = 64
    samples: Count = 1_000_000
    batch_size: Count = 16
    steps: Count = 120
    learning_rate: Positive = 2e-3
    workers: CountOrNone = 0
    compile: bool = False
    bf16: bool = False
    log_seconds: Positive = 5.0
    checkpoint_seconds: Positive = 120.0

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=2)


def article_config(values: Mapping[str, Any]) -> ArticleConfig:
    """Return the defaults with `values` laid over them. Raise ConfigError as `config_from_mapping` does."""
    known = [member.name for member in dataclasses.fields(ArticleConfig)]
    for name in values:
        if name not in known:
            raise ConfigError(
                f"unknown configuration key {name!r} for the article's net; known keys: {', '.join(known)}"
            )
    return checked(ArticleConfig(), values)


class FakeDataset(Dataset[tuple[Tensor, Tensor]]):
    """`length` samples: image uint8 [1, 256, 256], and boxes float32 [n, 4] (xyxy, pixels, at least 1 wide
    and high) with n = floor(|N(0, 3)|), at most `max_boxes`. Sample i depends on `seed` and i alone."""

    def __init__(self, length: int, max_boxes: int = 256, seed: int = 0) -> None:
        if length < 1:
            raise ValueError(f"length must be at least 1, got {length}")
        self.length, self.max_boxes, self.seed = length, max_boxes, seed

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if not 0 <= index < self.length:
            raise IndexError(f"index must be from 0 to {self.length - 1}, got {index}")
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + index)
        image = torch.randint(0, 256, (1, CANVAS_SIZE, CANVAS_SIZE), generator=generator, dtype=torch.uint8)
        count = int(torch.randn((), generator=generator).mul(3).abs().floor())
        corners = torch.rand(min(count, self.max_boxes), 2, 2, generator=generator) * (CANVAS_SIZE - 1)
        low, high = corners.amin(1).floor(), corners.amax(1).floor() + 1
        return image, torch.cat([low, high], dim=1)


class RandomBatches(Sampler[list[int]]):
    """Endless batches of indices, drawn from `samples`. What batch i holds depends on `seed` and i alone, so
    that a run can be taken up at any step."""

    def __init__(self, samples: int, batch_size: int, seed: int, first: int) -> None:
        self._samples, self._batch_size, self._seed, self._next = samples, batch_size, seed, first

    def __iter__(self) -> Iterator[list[int]]:
        while True:
            generator = torch.Generator().manual_seed(self._seed * 1_000_003 + self._next)
            self._next += 1
            drawn: list[int] = torch.randint(self._samples, (self._batch_size,), generator=generator).tolist()
            yield drawn


def load_batches(
    config: ArticleConfig, first: int, pin_memory: bool
) -> Iterator[tuple[Tensor, PackedTargets]]:
    """Yield batches for ever, from step `first` on: images uint8 [B, 1, 256, 256] and their boxes."""
    batches: DataLoader[tuple[Tensor, Tensor]] = DataLoader(
        FakeDataset(config.samples, seed=config.seed),
        batch_sampler=RandomBatches(config.samples, config.batch_size, config.seed, first),
        collate_fn=collate_packed,
        num_workers=config.workers,
        pin_memory=pin_memory,
    )
    return iter(batches)


def held_out_batch(config: ArticleConfig, size: int) -> tuple[Tensor, PackedTargets]:
    """Return a batch of samples that training does not see."""
    data = FakeDataset(size, seed=config.seed + 1)
    return collate_packed([data[index] for index in range(size)])
