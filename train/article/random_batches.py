"""Batches of the article's random data, boxes packed."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from lensbox.ops import PackedTargets, collate_packed
from lensbox.train.article.settings import ArticleConfig
from lensbox.train.data.fake_dataset import FakeDataset


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
    """Batches without end, from that of step `first`: images uint8 [B, 1, 256, 256] and their boxes."""
    batches: DataLoader[tuple[Tensor, Tensor]] = DataLoader(
        FakeDataset(config.samples, seed=config.seed),
        batch_sampler=RandomBatches(config.samples, config.batch_size, config.seed, first),
        collate_fn=collate_packed,
        num_workers=config.workers,
        pin_memory=pin_memory,
    )
    return iter(batches)


def held_out_batch(config: ArticleConfig, size: int) -> tuple[Tensor, PackedTargets]:
    """Samples that training does not see."""
    data = FakeDataset(size, seed=config.seed + 1)
    return collate_packed([data[index] for index in range(size)])
