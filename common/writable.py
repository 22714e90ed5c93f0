"""Whether what a command is to write at its end can be written, asked before it begins."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

from lensbox.common.errors import OutputError, system_reason


def require_writable_file(option: str, path: Path) -> None:
    """Makes the folder of a file to write later. Raises OutputError, naming the option, if it cannot be."""
    with contextlib.suppress(OSError):  # of a folder that may not be entered: the next line says so
        if path.is_dir():
            raise OutputError(f"{option} must be a file, got the folder {path}")
    _require_writable(option, "a file", path.parent, path)


def require_writable_folder(option: str, path: Path) -> None:
    """Makes a folder to write to later. Raises OutputError, naming the option, if it cannot be."""
    _require_writable(option, "a folder", path, path)


def _require_writable(option: str, kind: str, folder: Path, path: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OutputError(
            f"{option} must be {kind} that can be written, got {path}: {system_reason(error)}"
        ) from error
