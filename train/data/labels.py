"""The labelled photographs of a training run: what is read, and which photographs belong together."""

import logging
import zlib
from collections.abc import Sequence
from typing import Any

from lensbox.evaluation.data.account import Account
from lensbox.evaluation.data.labels import LabelledImage, read_labels
from lensbox.train.settings import TrainInputs

logger = logging.getLogger(__name__)


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
