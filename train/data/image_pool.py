"""Data that does not fit on the device: an image store whose photographs are exchanged while training runs.

The store holds as many photographs as the configuration allows. A DataLoader decodes others in worker
processes, and after each training step a batch that is ready takes the place of
the photographs that have been there longest. The training step, captured or not, never notices.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from lensbox.common.errors import InputError
from lensbox.train.data.image_store import (
    SIDE,
    ImageStore,
    StoreTensors,
    fill_slots,
    load_images,
    of_source,
    trim_boxes,
    try_decode,
)
from lensbox.train.data.labels import LabelledImage, Problem
from lensbox.train.errors import TrainingError

CLOSE_SECONDS = 20.0

Sample = tuple[Tensor, Tensor, Tensor, Tensor]


class DecodingDataset(Dataset[Sample]):
    """Decoded photographs: pixels uint8 [SIDE, SIDE], size float32 [2], boxes [n, 4], ignore bool [n].

    An unreadable photograph becomes a black one without boxes: it was reported when the pool was filled, or
    teaches nothing. Boxes beyond `capacity` are left out, the smallest first.
    """

    def __init__(
        self, images: Sequence[LabelledImage], trims: Mapping[str, Sequence[float]], capacity: int
    ) -> None:
        self.images, self.trims, self.capacity = images, trims, capacity

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Sample:
        image = self.images[index]
        pixels = torch.zeros(SIDE, SIDE, dtype=torch.uint8)
        decoded = try_decode(image)
        if isinstance(decoded, Problem):
            return pixels, torch.ones(2), torch.zeros(0, 4), torch.zeros(0, dtype=torch.bool)
        height, width = decoded.pixels.shape
        pixels[:height, :width] = torch.from_numpy(decoded.pixels.copy())
        trim = of_source(image, self.trims, (0.0, 0.0, 0.0, 0.0))
        boxes = torch.from_numpy(trim_boxes(decoded.boxes, trim))
        ignore = torch.from_numpy(decoded.ignore.copy())
        largest = (boxes[:, 2:] - boxes[:, :2]).prod(1).argsort(descending=True)[: self.capacity]
        return pixels, torch.tensor([float(width), float(height)]), boxes[largest], ignore[largest]


class WeightedSampler(Sampler[int]):
    """Draws indices for ever, with replacement and by weight, from a seed."""

    def __init__(self, weights: Tensor, seed: int) -> None:
        self.weights, self.seed = weights, seed

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed)
        while True:
            yield from torch.multinomial(self.weights, 1024, replacement=True, generator=generator).tolist()


def collate(samples: list[Sample], capacity: int) -> tuple[Tensor, ...]:
    """Joins samples to the first five of `StoreTensors`, with `capacity` box slots."""
    pixels, sizes, boxes, ignore = zip(*samples, strict=True)
    return torch.stack(pixels), torch.stack(sizes), *fill_slots(boxes, ignore, capacity)


class ImagePool:
    """A store of `resident` photographs out of more, renewed by `refill`.

    Attributes:
        store: what the training step draws from.
        replaced: photographs exchanged so far.
    """

    def __init__(
        self,
        images: Sequence[LabelledImage],
        device: torch.device,
        *,
        resident: int,
        weights: Mapping[str, float],
        trims: Mapping[str, Sequence[float]],
        capacity: int,
        workers: int,
        batch_size: int = 32,
        seed: int = 0,
    ) -> None:
        chances = torch.tensor([float(of_source(image, weights, 1.0)) for image in images])
        if float(chances.sum()) <= 0:
            raise InputError("weights must leave a source to draw from: every source has weight 0")
        sampler = WeightedSampler(chances, seed)
        first = [images[index] for _, index in zip(range(resident), sampler, strict=False)]
        # Photographs are drawn into the pool by weight, so inside it all weigh the same.
        self.store: ImageStore = load_images(first, device, trims=trims, capacity=capacity, workers=workers)
        self.replaced = 0
        slots = self.store.tensors.boxes.shape[1]
        loader = DataLoader(
            DecodingDataset(images, trims, slots),
            batch_size=min(batch_size, len(self.store)),
            sampler=WeightedSampler(chances, seed + 1),
            num_workers=workers,
            collate_fn=partial(collate, capacity=slots),
            pin_memory=device.type == "cuda",
            # A fork would copy a process that has already initialised CUDA.
            multiprocessing_context="spawn" if workers > 0 else None,
        )
        self._loader = loader
        self._ready: queue.Queue[tuple[Tensor, ...] | Exception] = queue.Queue(maxsize=2)
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._device = device

    def refill(self, wait: bool = False) -> None:
        """Puts a decoded batch, if one is ready, in the place of the oldest photographs.

        Neither workers nor device are waited for, unless `wait` asks for a batch.

        Raises:
            TrainingError: a worker has ended, as it does where memory is short: from now on the photographs
                would stay the same.
        """
        if self._thread is None:
            # Not before the first step: pinning memory in a thread would break the capture of a CUDA graph.
            self._thread = threading.Thread(target=self._fetch, daemon=True)
            self._thread.start()
        try:
            fresh = self._ready.get(block=wait)
        except queue.Empty:
            return
        if isinstance(fresh, Exception):
            raise TrainingError(f"the workers that decode photographs must go on, got {fresh!r}") from fresh
        tensors: StoreTensors = self.store.tensors
        count = len(fresh[0])
        slots = (torch.arange(count) + self.replaced) % len(self.store)
        slots = slots.to(self._device, non_blocking=True)
        for place, value in zip(tensors[:5], fresh, strict=True):
            place.index_copy_(0, slots, value.to(self._device, non_blocking=True))
        self.replaced += count

    def close(self) -> None:
        """Ends the workers. What the store holds stays; there is no `refill` afterwards.

        One that is busy for longer than CLOSE_SECONDS, as with a disk that does not answer, ends with the
        process.
        """
        self._closed.set()
        latest = time.monotonic() + CLOSE_SECONDS
        while self._thread is not None and self._thread.is_alive() and time.monotonic() < latest:
            with contextlib.suppress(queue.Empty):  # it may wait for a place
                self._ready.get_nowait()
            self._thread.join(0.05)

    def _fetch(self) -> None:
        try:
            for batch in self._loader:
                self._ready.put(batch)
                if self._closed.is_set():
                    return  # with the iterator, the workers end
        except Exception as error:
            self._ready.put(error)
