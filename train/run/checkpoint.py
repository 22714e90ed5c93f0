"""Checkpoint files: everything that the next step depends on."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch

from lensbox.common.errors import InputError
from lensbox.common.files import atomic_write

FORMAT = 3


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Save `state` (tensors, numbers, text, containers of them); the file appears whole or not at all."""
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, **state}, buffer)
    atomic_write(path, buffer.getvalue())


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
        raise InputError(f"{path} must be a checkpoint, got a damaged or other file") from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise InputError(f"{path} must be a checkpoint of format {FORMAT}")
    return state
