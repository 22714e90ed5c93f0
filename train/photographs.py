"""The labelled photographs of a run: read, parted in folds, decoded to tensors on the training device.

A photograph is kept gray, at most `SIDE` pixels on its long side, in the top left corner of a SIDExSIDE
tile: 169 kB each, so tens of thousands fit beside the training itself.
"""

import logging
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812
from PIL import Image
from torch import Tensor

from lensbox.common.errors import InputError
from lensbox.evaluation.data.account import Account
from lensbox.evaluation.data.labels import DataError, LabelledImage, none_readable, read_labels
from lensbox.runtime.file.metadata import Reading
from lensbox.runtime.images.decoder import decode_photo
from lensbox.train.settings import TrainConfig, TrainInputs

SIDE = 416

logger = logging.getLogger(__name__)

Value = TypeVar("Value")


def read_training_labels(
    inputs: TrainInputs,
) -> tuple[list[LabelledImage], list[LabelledImage], dict[str, Any]]:
    """Return the photographs of --data and of --val, and the accounts, which are logged, for JSON."""
    sets: dict[str, list[LabelledImage]] = {"data": [], "val": []}
    accounts = {}
    for name, paths, split in (("data", inputs.data, "train"), ("val", inputs.val, "val")):
        if paths:
            account = Account()
            sets[name] = read_labels(paths, inputs.strict, split, inputs.orientation or "exif", account)[0]
            account.report(f"the labels of --{name}:")
            accounts[name] = account.to_json()
            if all(image.ignore.all() for image in sets[name]):
                where, count = ", ".join(map(str, paths)), len(sets[name])
                logger.warning("no box to find in %s: all %d photographs are background", where, count)
    data, val = sets.values()
    if shared := shared_photographs(val, data):
        message = "%d of %d photographs of --val are in --data too, such as %s: the figures will be too good"
        logger.warning(message, len(shared), len(val), shared[0])
    return data, val, accounts


def fold_index(name: str, count: int) -> int:
    """Return the fold, from 0 to count - 1, of the photograph of this name."""
    return zlib.crc32(name.encode()) % count


def shared_photographs(images: Sequence[LabelledImage], others: Sequence[LabelledImage]) -> list[str]:
    """Return the names of photographs that are in both, by name and boxes; names alone may repeat."""
    known = {(image.name, image.boxes.tobytes()) for image in others if len(image.boxes)}
    return [image.name for image in images if (image.name, image.boxes.tobytes()) in known]


class StoreTensors(NamedTuple):
    """Photographs with their boxes, as the drawing of views needs them, all on one device.

    images: uint8 [N, SIDE, SIDE]. sizes: float32 [N, 2], width and height in pixels. boxes: float32
    [N, C, 4], xyxy in pixels of the tile; boxes to find first, then ignored ones. counts, totals: int64 [N],
    boxes to find; to find and to ignore. cumulative: float32 [N], rising to 1: probability of drawing an
    image with this index or a lower one. folds: float32 [K + 1], from 0 to 1: limits of the K folds in
    `cumulative`; [0, 1] without folds.
    """

    images: Tensor
    sizes: Tensor
    boxes: Tensor
    counts: Tensor
    totals: Tensor
    cumulative: Tensor
    folds: Tensor


def decode_image(image: LabelledImage) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32]]:
    """Return gray pixels uint8 [h, w] of at most `SIDE` pixels a side, and boxes float32 [n, 4] in them.

    Decode as the runtime does. Raise InputError.
    """
    try:
        pixels = decode_photo(image.read_bytes(), None, Reading(image.orientation)).pixels
    except (OSError, InputError, MemoryError) as error:
        raise InputError(f"{image.origin}: image {image.name} cannot be read: {error}") from error
    picture = Image.fromarray(pixels.permute(1, 2, 0).squeeze(2).numpy()).convert("L")
    boxes, size = image.boxes.astype(np.float32), np.array(picture.size)
    if size.max() > SIDE:
        width, height = fitted = [max(1, round(side * SIDE / max(picture.size))) for side in picture.size]
        # BILINEAR in Pillow widens its filter when it shrinks: the same antialiasing as the letterbox.
        picture = picture.resize((width, height), Image.Resampling.BILINEAR)
        boxes = boxes * np.tile(fitted / size, 2).astype(np.float32)
    return np.asarray(picture, np.uint8), boxes


def of_source(image: LabelledImage, values: Mapping[str, Value], default: Value) -> Value:
    """Return the value of a photograph's source, see `source_names`."""
    return next((values[name] for name in source_names(image) if name in values), default)


def source_names(image: LabelledImage) -> list[str]:
    """Return the source folder of a photograph, and `wider` for every WIDER FACE event (`<n>--<Event>`)."""
    return [image.source, *(["wider"] if "--" in image.source else [])]


def trim_boxes(boxes: npt.NDArray[np.float32], trim: Sequence[float]) -> npt.NDArray[np.float32]:
    """Cut shares of their width or height off boxes [n, 4] at left, top, right and bottom."""
    inward = np.array([trim[0], trim[1], -trim[2], -trim[3]], np.float32)
    return np.asarray(boxes + np.tile(boxes[:, 2:] - boxes[:, :2], 2) * inward, np.float32)


def load_images(
    images: Sequence[LabelledImage],
    device: torch.device | str,
    config: TrainConfig,
    folds: int = 1,
    strict: bool = False,
) -> StoreTensors:
    """Decode all images in threads (decoding releases the interpreter lock) and move them to `device`.

    folds: number of folds; photographs of a fold are kept together, see `StoreTensors.folds`. Warn of images
    that cannot be read. Raise InputError if no image can be read, one cannot with `strict`, or all weights
    (of a fold) are 0.
    """

    kept: list[LabelledImage] = []
    problems: list[str] = []
    pixels = torch.zeros(len(images), SIDE, SIDE, dtype=torch.uint8)
    # numpy copies in this thread. The threads of torch wait awake, and slow other runs on the same host.
    rows, boxes, sizes = pixels.numpy(), [], []
    with ThreadPoolExecutor(max(1, config.workers)) as pool:
        in_order = sorted(images, key=lambda image: fold_index(image.name, folds))
        decoding = deque((image, pool.submit(decode_image, image)) for image in in_order)
        while decoding:
            image, decoded = decoding.popleft()
            try:
                picture, corners = decoded.result()
            except InputError as error:
                problems.append(str(error))
                continue
            rows[len(kept), : picture.shape[0], : picture.shape[1]] = picture
            kept.append(image)
            trim = of_source(image, config.source_trims, (0.0, 0.0, 0.0, 0.0))
            boxes.append(torch.from_numpy(trim_boxes(corners, trim)))
            sizes.append(picture.shape[::-1])
    if not kept:
        raise none_readable("readable image", f"{len(images)} of them", problems)
    if problems and strict:
        raise DataError(problems[0])
    if problems:
        logger.warning("%d photographs are left out, the first: %s", len(problems), problems[0])
    chances = torch.tensor([float(of_source(image, config.source_weights, 1.0)) for image in kept])
    if float(chances.sum()) <= 0:
        raise InputError("source_weights must leave a source to draw from: every source has weight 0")
    index = torch.tensor([fold_index(image.name, folds) for image in kept])
    shares = torch.bincount(index, chances.double(), folds)
    if float(shares.min()) <= 0:
        each = f"each of {folds} folds"
        raise InputError(f"data must hold photographs to draw of {each}, got a fold without any")
    bounds = F.pad(shares.cumsum(0) / shares.sum(), (1, 0)).float()
    ignore = [torch.from_numpy(image.ignore) for image in kept]
    shapes, capacity = torch.tensor(sizes), max(config.max_targets, config.max_ignored)
    store = store_tensors(pixels[: len(kept)], shapes, boxes, ignore, chances, capacity, bounds)
    return StoreTensors(*(tensor.to(device) for tensor in store))


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

    pixels: uint8 [N, SIDE, SIDE]. sizes: [N, 2], width and height. boxes: [n, 4] for each photograph. ignore:
    bool [n] for each. chances: [N] weights of at least 0 for drawing each image; their sum must be above 0.
    capacity: least number of box slots per photograph; the most crowded one may raise it. folds: as in
    `StoreTensors`; None for one fold.
    """
    slots = torch.zeros(len(boxes), max(capacity, *map(len, boxes)), 4)
    for row, image_boxes, image_ignore in zip(slots, boxes, ignore, strict=True):
        row[: len(image_boxes)] = image_boxes[torch.argsort(image_ignore.byte(), stable=True)]
    counts = torch.tensor([int((~flags).sum()) for flags in ignore])
    totals = torch.tensor([len(flags) for flags in ignore])
    cumulative = (chances.double().cumsum(0) / chances.double().sum()).float()
    folds = torch.tensor([0.0, 1.0]) if folds is None else folds
    return StoreTensors(pixels, sizes.float(), slots, counts, totals, cumulative, folds)
