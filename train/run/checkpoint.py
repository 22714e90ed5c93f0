"""Checkpoint files: everything that the next step depends on, or the weight average alone."""

from __future__ import annotations

import io
import logging
import pickle
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
    """Rename the checkpoint that an earlier run left, before another run begins in its folder: interrupted
    before its own first one, that run would be taken up from it."""
    if path.is_file():
        earlier = path.with_name(f"earlier_{path.name}")
        path.replace(earlier)
        logger.warning("%s of an earlier run is now %s; --resume would have gone on with it", path, earlier)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Load what `save_checkpoint` wrote, on the CPU.

    Raises:
        FileNotFoundError: there is no such file.
        InputError: it is damaged, or no checkpoint of this format.
    """
    if not path.is_file():
        raise FileNotFoundError(f"checkpoint must be a file that exists, got {path}")
    if not zipfile.is_zipfile(path):
        raise InputError(f"{path} must be a checkpoint, got a file that torch.save did not write")
    try:
        with zipfile.ZipFile(path) as archive:
            is_torchscript = any(name.endswith("/constants.pkl") for name in archive.namelist())
        state = None if is_torchscript else torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:  # its message advises to run whatever code the file holds
        raise InputError(
            f"{path} must be a checkpoint, got a file that is damaged or holds more than tensors and numbers"
        ) from error
    except Exception as error:  # a damaged archive or pickle may fail in any way
        raise InputError(f"{path} must be a checkpoint, got a damaged file: {error}") from error
    if is_torchscript:
        raise InputError(f"{path} must be a checkpoint, got an artifact: --artifact takes it")
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise InputError(f"{path} must be a checkpoint of format {FORMAT}")
    return state


def load_average(path: Path) -> FaceDetector:
    """Return the detector with the averaged weights of a run's checkpoint, on the CPU, in eval mode.

    Raises:
        InputError: there is no such file, or it is no checkpoint of a detector.
    """
    try:
        checkpoint = load_checkpoint(path)
        detector = FaceDetector(DetectorConfig.from_json(checkpoint["detector"]))
        detector.load_state_dict(checkpoint["step"]["average"])
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError(str(error)) from error
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{path} must be a checkpoint of a detector: {error!r}") from error
    return detector.eval()
