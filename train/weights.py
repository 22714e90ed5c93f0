"""Reads weights that a command was given."""

from __future__ import annotations

from pathlib import Path

from lensbox.common.errors import InputError
from lensbox.model import FaceDetector, load_detector


def load_weights(path: Path | None) -> FaceDetector:
    """The detector of a file that `save_detector` wrote, of any size; None is the shipped one.

    Raises:
        InputError: there is no such file, or it does not hold a detector.
    """
    try:
        return load_detector(path)
    except FileNotFoundError as error:
        raise InputError(str(error)) from error
