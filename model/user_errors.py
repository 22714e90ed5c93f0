"""Errors in the code of users: the line, and the value, for messages."""

import traceback
from pathlib import Path

import torch

_OWN_FOLDERS = ("common", "export", "model", "ops", "runtime")


def location(error: BaseException) -> str:
    """Return ' (file:line)' of the innermost frame outside torch and Lensbox, or ''."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_users(frame.filename)]
    return f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""


def type_and_line(error: BaseException) -> str:
    """Return 'Type: message (file:line)'."""
    return f"{type(error).__name__}: {error}{location(error)}"


def kind_of(value: object) -> str:
    """Describe a wrong value by its type, for messages."""
    return f"a {value.__name__} (call it)" if isinstance(value, type) else type(value).__name__


def is_users(file: str) -> bool:
    """Return whether a source file belongs to neither torch nor Lensbox."""
    lensbox = Path(__file__).resolve().parents[1]
    own = [Path(torch.__file__).parent, *(lensbox / folder for folder in _OWN_FOLDERS)]
    path = Path(file).resolve()
    return path.is_file() and not any(path.is_relative_to(folder) for folder in own)
