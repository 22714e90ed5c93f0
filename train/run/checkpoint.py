"""Checkpoint files: everything that the next step depends on, or the weight average alone."""

from __future__ import annotations

import io
import logging
import zipfile
from pathlib import Path
from typing import Any

import torch

from lensbox.common.errors import InputError
from lensbox.common.files import atomic_write
from lensbox.model import DetectorConfig, FaceDetector

FORMAT = 2

logger = logging.getLogger(__name__)


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Save `state` (tensors, numbers, text, containers of them); the file appears whole or not at all."""
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, **state}, buffer)
    atomic_write(path, buffer.getvalue())


def set_aside(path: Path) -> None:
    """Rename the checkpoint of an earlier run before another run begins in its folder.

    If the new run is interrupted before its first checkpoint, `--resume` must not go on with the earlier run.
    """
    if path.is_file():
        earlier = path.with_name(f"earlier_{path.name}")
        path.replace(earlier)
        logger.warning("%s of an earlier run is now %s; --resume would have gone on with it", path, earlier)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Load what `save_checkpoint` wrote, on the CPU.

    Raises:
        InputError: there is no such file, it is damaged, or no checkpoint of this format.
    """
    if not path.is_file():
        raise InputError(f"checkpoint must be a file that exists, got {path}")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged archive or pickle may fail in any way
        # Without torch's own message, which advises to run whatever code the file holds.
        hint = " (--artifact takes an exported detector)" if zipfile.is_zipfile(path) else ""
        raise InputError(f"{path} must be a checkpoint, got a damaged or other file{hint}") from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise InputError(f"{path} must be a checkpoint of format {FORMAT}")
    return state


def load_average(path: Path) -> FaceDetector:
    """Return the detector with the averaged weights of a run's checkpoint, on the CPU, in eval mode.

    Raises:
        InputError: there is no such file, or it is no checkpoint of a detector.
    """
    checkpoint = load_checkpoint(path)
    try:
        detector = FaceDetector(DetectorConfig.from_json(checkpoint["detector"]))
        detector.load_state_dict(checkpoint["step"]["average"])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{path} must be a checkpoint of a detector: {error!r}") from error
    return detector.eval()
