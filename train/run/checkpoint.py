"""Checkpoints that are either whole or not there."""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch

from lensbox.model import DetectorConfig, FaceDetector

FORMAT = 2


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a file under a temporary name and renames it, so that a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Saves `state` (tensors, numbers, text, containers of them) atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            torch.save({"format": FORMAT, **state}, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Loads what `save_checkpoint` wrote, on the CPU.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is damaged, or no checkpoint of this format.
    """
    if not path.is_file():
        raise FileNotFoundError(f"checkpoint must be a file that exists, got {path}")
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} must be a checkpoint, got a file that torch.save did not write")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, pickle.UnpicklingError) as error:
        raise ValueError(f"{path} must be a checkpoint: {error}") from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise ValueError(f"{path} must be a checkpoint of format {FORMAT}")
    return state


def load_average(path: Path) -> FaceDetector:
    """The detector with the averaged weights of a run's checkpoint, on the CPU, in eval mode.

    Raises what `load_checkpoint` raises.
    """
    checkpoint = load_checkpoint(path)
    detector = FaceDetector(DetectorConfig.from_json(checkpoint["detector"]))
    detector.load_state_dict(checkpoint["step"]["average"])
    return detector.eval()
