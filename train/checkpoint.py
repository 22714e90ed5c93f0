"""Checkpoints that are either whole or not there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

FORMAT = 1


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
        torch.save({"format": FORMAT, **state}, partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Loads what `save_checkpoint` wrote, on the CPU.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no checkpoint of this format.
    """
    if not path.is_file():
        raise FileNotFoundError(f"checkpoint must be a file that exists, got {path}")
    state = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise ValueError(f"{path} must be a checkpoint of format {FORMAT}")
    return state
