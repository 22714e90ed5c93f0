"""Data that does not fit on the device: an image store whose photographs are exchanged while training runs.

The store holds as many photographs as the configuration allows. Threads decode others, and after each
training step a batch that is ready takes the place of the photographs that have been there longest. The
training step, captured or not, never notices.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import torch
from torch import Tensor

from lensbox.common.errors import InputError
from lensbox.train.data.image_store import SIDE, ImageStore, fill_slots, load_images, of_source, try_prepare
from lensbox.train.data.labels import LabelledImage, Problem
from lensbox.train.errors import TrainingError


def draw_indices(weights: Tensor, seed: int) -> Iterator[int]:
    """Draw indices for ever, with replacement and by weight."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield from torch.multinomial(weights, 1024, replacement=True, generator=generator).tolist()


class ImagePool:
    """A store of `resident` photographs out of more, renewed by `refill`.

    A photograph that cannot be read becomes a black one without boxes. Boxes beyond the store's slots are
    left out, the smallest first.

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
        first = [images[index] for index in islice(draw_indices(chances, seed), resident)]
        # Photographs are drawn into the pool by weight, so inside it all weigh the same.
        self.store: ImageStore = load_images(first, device, trims=trims, capacity=capacity, workers=workers)
        self.replaced = 0
        self._images, self._trims, self._device = images, trims, device
        self._indices = draw_indices(chances, seed + 1)
        self._batch_size = min(batch_size, len(self.store))
        self._decoders = ThreadPoolExecutor(max(1, workers))  # decoding releases the interpreter lock
        self._ready: queue.Queue[tuple[Tensor, ...] | Exception] = queue.Queue(maxsize=2)
        self._thread = threading.Thread(target=self._fetch, daemon=True)
        self._closed = threading.Event()

    def refill(self, wait: bool = False) -> None:
        """Put a decoded batch, if one is ready, in the place of the oldest photographs.

        Wait neither for threads nor for the device, unless `wait` asks for a batch.

        Raises:
            TrainingError: decoding failed for another reason than a photograph: from now on the photographs
                would stay the same.
        """
        if self._thread.ident is None:
            # Not before the first step: pinning memory in a thread would break the capture of a CUDA graph.
            self._thread.start()
        try:
            fresh = self._ready.get(block=wait)
        except queue.Empty:
            return
        if isinstance(fresh, Exception):
            raise TrainingError(f"the threads that decode photographs must go on, got {fresh!r}") from fresh
        count = len(fresh[0])
        slots = (torch.arange(count) + self.replaced) % len(self.store)
        slots = slots.to(self._device, non_blocking=True)
        for place, value in zip(self.store.tensors[:5], fresh, strict=True):
            place.index_copy_(0, slots, value.to(self._device, non_blocking=True))
        self.replaced += count

    def close(self) -> None:
        """End the threads. What the store holds stays; there is no `refill` afterwards."""
        self._closed.set()
        with contextlib.suppress(queue.Empty):  # the thread may wait for a place
            while True:
                self._ready.get_nowait()
        if self._thread.ident is not None:
            self._thread.join()
        self._decoders.shutdown()

    def _fetch(self) -> None:
        try:
            while not self._closed.is_set():
                batch = [self._images[index] for index in islice(self._indices, self._batch_size)]
                self._ready.put(self._decode(batch))
        except Exception as error:
            self._ready.put(error)

    def _decode(self, images: Sequence[LabelledImage]) -> tuple[Tensor, ...]:
        """Return the first five of `StoreTensors` for these photographs, on the host."""
        capacity = self.store.tensors.boxes.shape[1]
        pixels = torch.zeros(len(images), SIDE, SIDE, dtype=torch.uint8)
        sizes, boxes, ignore = torch.ones(len(images), 2), [], []
        prepared = self._decoders.map(lambda image: try_prepare(image, self._trims), images)
        for index, photo in enumerate(prepared):
            if isinstance(photo, Problem):  # it was reported when the pool was filled, or teaches nothing
                boxes.append(torch.zeros(0, 4))
                ignore.append(torch.zeros(0, dtype=torch.bool))
                continue
            height, width = photo.pixels.shape
            pixels[index, :height, :width] = torch.from_numpy(photo.pixels.copy())
            sizes[index] = torch.tensor([float(width), float(height)])
            found = torch.from_numpy(photo.boxes)
            largest = (found[:, 2:] - found[:, :2]).prod(1).argsort(descending=True)[:capacity]
            boxes.append(found[largest])
            ignore.append(torch.from_numpy(photo.ignore.copy())[largest])
        tensors = (pixels, sizes, *fill_slots(boxes, ignore, capacity))
        return tuple(value.pin_memory() for value in tensors) if self._device.type == "cuda" else tensors
