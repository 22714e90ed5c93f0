"""Files that are either whole or not there, and whether they can be written at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from lensbox.train.errors import ConfigError


def write_atomically(path: Path, content: bytes | memoryview) -> None:
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


def require_writable_file(option: str, path: Path) -> None:
    """Makes the folder of a file to write later. Raises ConfigError, naming the option, if it cannot be."""
    if path.is_dir():
        raise ConfigError(f"{option} must be a file, got the folder {path}")
    _require_writable(option, "a file", path.parent, path)


def require_writable_folder(option: str, path: Path) -> None:
    """Makes a folder to write to later. Raises ConfigError, naming the option, if it cannot be."""
    _require_writable(option, "a folder", path, path)


def _require_writable(option: str, kind: str, folder: Path, path: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(f"{option} must be {kind} that can be written, got {path}: {error}") from error
