"""Folds: shares of the photographs that a teacher was not trained on.

A detector trained long on few photographs knows them by heart, and says of them little more than their
labels. Of photographs that it never saw it says what one can really know. A student that asks about each
photograph a teacher that was trained without it is cross-fitted (Dao et al. 2021, arXiv:2104.09732).

A photograph's name alone decides its fold, so other data beside it, or another order, change nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from lensbox.train.data.labels import LabelledImage
from lensbox.train.errors import ConfigError

LEFT_OUT = "left_out"  # key of a detector's metadata: the fold that it was not trained on


@dataclass(frozen=True, order=True)
class Fold:
    """Share `index` (from 0) of `count` equal ones, about; written `1/4` for the first of four."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index + 1}/{self.count}"

    def holds(self, name: str) -> bool:
        """Return whether the photograph of this name belongs to it."""
        return fold_index(name, self.count) == self.index


def fold_index(name: str, count: int) -> int:
    """Return the fold, from 0 to count - 1, of the photograph of this name."""
    return zlib.crc32(name.encode()) % count


def parse_fold(text: str, source: str = "--leave-out") -> Fold:
    """Read `1/4`. Raise ConfigError, naming `source`, for anything but K out of N, N at least 2."""
    index, slash, count = text.partition("/")
    if slash and index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count) >= 2:
        return Fold(int(index) - 1, int(count))
    raise ConfigError(
        f"{source} must be a share such as 1/4, from 1/N to N/N with N at least 2, got {text!r}"
    )


def without_fold(images: Sequence[LabelledImage], fold: Fold) -> list[LabelledImage]:
    """Return the photographs of all other folds."""
    return [image for image in images if not fold.holds(image.name)]
