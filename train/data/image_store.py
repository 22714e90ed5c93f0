"""Decoded photographs and their boxes on the training device, where every view is drawn from them.

A photograph is kept gray, at most `SIDE` pixels on its long side, in the top left corner of a SIDExSIDE
tile: 169 kB each, so tens of thousands fit beside the training itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812
from PIL import Image
from torch import Tensor

from lensbox.common.errors import InputError
from lensbox.runtime.file.metadata import Reading
from lensbox.runtime.images.decoder import decode_photo
from lensbox.runtime.images.orientation import orientation_of
from lensbox.train.data.labels import LabelledImage, fold_index, none_readable
from lensbox.train.settings import TrainConfig

SIDE = 416

logger = logging.getLogger(__name__)

Value = TypeVar("Value")


class StoreTensors(NamedTuple):
    """Photographs with their boxes, as the drawing of views needs them, all on one device.

    Attributes:
        images: uint8 [N, SIDE, SIDE].
        sizes: float32 [N, 2], width and height in pixels.
        boxes: float32 [N, C, 4], xyxy in pixels of the tile; boxes to find first, then ignored ones.
        counts: int64 [N], boxes to find.
        totals: int64 [N], boxes to find and to ignore.
        cumulative: float32 [N], rising to 1: probability of drawing an image with this index or a lower one.
        folds: float32 [K + 1], from 0 to 1: limits of the K folds in `cumulative`; [0, 1] without folds.
    """

    images: Tensor
    sizes: Tensor
    boxes: Tensor
    counts: Tensor
    totals: Tensor
    cumulative: Tensor
    folds: Tensor


class Decoded(NamedTuple):
    """pixels uint8 [h, w], or [h, w, 3] in RGB; boxes float32 [n, 4] in these pixels; ignore bool [n].

    turned: the file has an EXIF orientation. problem: a line on boxes outside of the photograph, which are
    ignored.
    """

    pixels: npt.NDArray[np.uint8]
    boxes: npt.NDArray[np.float32]
    ignore: npt.NDArray[np.bool_]
    turned: bool
    problem: str | None = None


def decode_image(image: LabelledImage, side: int = SIDE, mode: Literal["L", "RGB"] = "L") -> Decoded:
    """Decode as the runtime does, convert to gray or RGB, and shrink to at most `side` pixels.

    Raises:
        OSError: the file cannot be read or is no image.
    """
    try:
        content = image.read_bytes()
        orientation = orientation_of(content)
        pixels = decode_photo(content, None, Reading(image.orientation)).pixels
    except (OSError, InputError, MemoryError) as error:
        raise OSError(f"image {image.name} cannot be read: {error}") from error
    picture = Image.fromarray(pixels.permute(1, 2, 0).squeeze(2).numpy()).convert(mode)
    boxes, (width, height) = image.boxes, picture.size
    outside = (boxes[:, :2] >= [width, height]).any(1) | (boxes[:, 2:] <= 0).any(1)
    problem = None
    if outside.any():
        count, of = int(outside.sum()), f"{len(boxes)} boxes outside of the photograph, {width} x {height}"
        problem = f"{image.origin}: {count} of {of} pixels; ignored"
    long_side = max(picture.size)
    if long_side > side:
        new_size = (max(1, round(width * side / long_side)), max(1, round(height * side / long_side)))
        # BILINEAR in Pillow widens its filter when it shrinks: the same antialiasing as the letterbox.
        picture = picture.resize(new_size, Image.Resampling.BILINEAR)
        ratio = np.array([new_size[0] / width, new_size[1] / height] * 2, np.float32)
        boxes = boxes * ratio
    ignore = image.ignore | outside
    return Decoded(np.asarray(picture, np.uint8), boxes, ignore, orientation != 1, problem)


def decode_all(
    images: Sequence[LabelledImage],
    prepare: Callable[[LabelledImage, Decoded], Value],
    workers: int,
    problems: list[str],
    side: int = SIDE,
    mode: Literal["L", "RGB"] = "L",
) -> Iterator[tuple[LabelledImage, Value]]:
    """Yield readable images with the result of `prepare`, which runs in threads: decoding releases the lock.

    Report unreadable images and their `Decoded.problem` in `problems`. Log how many are turned.

    Raises:
        DataError: no image can be read.
    """

    def attempt(image: LabelledImage) -> tuple[tuple[bool, Value] | None, str | None]:
        try:
            decoded = decode_image(image, side, mode)
        except OSError as error:
            return None, f"{image.origin}: {error}"
        return (decoded.turned, prepare(image, decoded)), decoded.problem

    readable, turned = 0, 0
    with ThreadPoolExecutor(max(1, workers)) as pool:
        for image, (result, problem) in zip(images, pool.map(attempt, images), strict=True):
            problems += [] if problem is None else [problem]
            if result is not None:
                readable, turned = readable + 1, turned + result[0]
                yield image, result[1]
    if not readable:
        raise none_readable("readable image", f"{len(images)} of them", problems)
    if turned:
        rule = images[0].orientation
        pixels = "the upright photographs" if rule == "exif" else "the pixels as stored"
        line = "%d of %d photographs have an EXIF orientation; their boxes are boxes of %s (--orientation %s)"
        logger.info(line, turned, len(images), pixels, rule)


def of_source(image: LabelledImage, values: Mapping[str, Value], default: Value) -> Value:
    """Return the value of a photograph's source, see `source_names`."""
    return next((values[name] for name in source_names(image) if name in values), default)


def source_names(image: LabelledImage) -> list[str]:
    """Return the source folder of a photograph, and `wider` for every WIDER FACE event (`<n>--<Event>`)."""
    return [image.source, *(["wider"] if "--" in image.source else [])]


def trim_boxes(boxes: npt.NDArray[np.float32], trim: Sequence[float]) -> npt.NDArray[np.float32]:
    """Cut shares of their width or height off boxes [n, 4] at left, top, right and bottom."""
    size = np.tile(boxes[:, 2:] - boxes[:, :2], 2)
    inward = np.array([trim[0], trim[1], -trim[2], -trim[3]], np.float32)
    return np.asarray(boxes + size * inward, np.float32)


def load_images(
    images: Sequence[LabelledImage], device: torch.device | str, config: TrainConfig, folds: int = 1
) -> tuple[StoreTensors, list[str]]:
    """Decode all images in threads (decoding releases the interpreter lock) and move them to `device`.

    folds: number of folds; photographs of a fold are kept together, see `StoreTensors.folds`. Return a line
    for each problem, too.

    Raises:
        InputError: no image can be read, or all weights are 0, or all weights of a fold.
    """
    images = sorted(images, key=lambda image: fold_index(image.name, folds))
    kept: list[LabelledImage] = []
    problems: list[str] = []
    pixels = torch.zeros(len(images), SIDE, SIDE, dtype=torch.uint8)
    # numpy copies in this thread. The threads of torch wait awake, and slow other runs on the same host.
    rows = pixels.numpy()
    boxes, ignore, sizes = [], [], []

    for image, decoded in decode_all(images, lambda _, decoded: decoded, config.workers, problems):
        height, width = decoded.pixels.shape
        rows[len(kept), :height, :width] = decoded.pixels
        kept.append(image)
        trim = of_source(image, config.source_trims, (0.0, 0.0, 0.0, 0.0))
        boxes.append(torch.from_numpy(trim_boxes(decoded.boxes, trim)))
        ignore.append(torch.from_numpy(decoded.ignore))
        sizes.append((width, height))
    chances = torch.tensor([float(of_source(image, config.source_weights, 1.0)) for image in kept])
    if float(chances.sum()) <= 0:
        raise InputError("source_weights must leave a source to draw from: every source has weight 0")
    index = torch.tensor([fold_index(image.name, folds) for image in kept])
    shares = torch.bincount(index, chances.double(), folds)
    if float(shares.min()) <= 0:
        raise InputError(
            f"data must hold photographs to draw of each of {folds} folds, got a fold without any"
        )
    bounds = F.pad(shares.cumsum(0) / shares.sum(), (1, 0)).float()
    shapes, capacity = torch.tensor(sizes), max(config.max_targets, config.max_ignored)
    store = store_tensors(pixels[: len(kept)], shapes, boxes, ignore, chances, capacity, bounds)
    return StoreTensors(*(tensor.to(device) for tensor in store)), problems


def store_tensors(
    pixels: Tensor,
    sizes: Tensor,
    boxes: Sequence[Tensor],
    ignore: Sequence[Tensor],
    chances: Tensor,
    capacity: int,
    folds: Tensor | None = None,
) -> StoreTensors:
    """Put photographs and boxes into tensors of fixed shapes.

    Args:
        pixels: uint8 [N, SIDE, SIDE]. sizes: [N, 2], width and height.
        boxes: [n, 4] for each photograph. ignore: bool [n] for each.
        chances: [N] weights of at least 0 for drawing each image; their sum must be above 0.
        capacity: least number of box slots per photograph; the most crowded one may raise it.
        folds: as in `StoreTensors`; None for one fold.
    """
    slots = torch.zeros(len(boxes), max(capacity, *map(len, boxes)), 4)
    for row, image_boxes, image_ignore in zip(slots, boxes, ignore, strict=True):
        row[: len(image_boxes)] = image_boxes[torch.argsort(image_ignore.byte(), stable=True)]
    counts = torch.tensor([int((~flags).sum()) for flags in ignore])
    totals = torch.tensor([len(flags) for flags in ignore])
    cumulative = (chances.double().cumsum(0) / chances.double().sum()).float()
    folds = torch.tensor([0.0, 1.0]) if folds is None else folds
    return StoreTensors(pixels, sizes.float(), slots, counts, totals, cumulative, folds)
