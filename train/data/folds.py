"""Folds: shares of the photographs that a teacher was not trained on.

A detector that was trained long on few photographs knows them by heart and predicts their labels. Its
predictions for photographs that it never saw are better targets. A student is cross-fitted if each photograph
is shown to a teacher that was trained without it (Dao et al. 2021, arXiv:2104.09732).

The name of a photograph alone decides its fold; other data and another order change nothing.
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
    """One of `count` folds of about equal size; `index` starts at 0. Text form: `1/4` for index 0 of 4."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index + 1}/{self.count}"

    def holds(self, name: str) -> bool:
        """Return whether the photograph of this name belongs to the fold."""
        return fold_index(name, self.count) == self.index


def fold_index(name: str, count: int) -> int:
    """Return the fold, from 0 to count - 1, of the photograph of this name."""
    return zlib.crc32(name.encode()) % count


def parse_fold(text: str, source: str = "--leave-out") -> Fold:
    """Parse `K/N`, such as `1/4`. Raise ConfigError that names `source` unless 1 <= K <= N and N >= 2."""
    index, slash, count = text.partition("/")
    if slash and index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count) >= 2:
        return Fold(int(index) - 1, int(count))
    raise ConfigError(
        f"{source} must be a share such as 1/4, from 1/N to N/N with N at least 2, got {text!r}"
    )


def without_fold(images: Sequence[LabelledImage], fold: Fold) -> list[LabelledImage]:
    """Return the photographs of all other folds."""
    return [image for image in images if not fold.holds(image.name)]
