"""The one way in which Lensbox writes a file that somebody may already rely on."""

import os
from pathlib import Path


def atomic_write(path: str | Path, content: bytes) -> None:
    """Writes a file, and the folders that it needs; it appears whole, or the old one stays.

    The content lies on the disk before the file gets its name. Its permissions are those of any new file. If
    the process is killed half-way, `NAME.PID.partial` may stay beside it. A link stays, and what it names is
    written; what is no file, such as /dev/null or a pipe, is written to. Raises OSError that names the file.
    """
    path = Path(path)
    if path.name in ("", ".."):
        raise IsADirectoryError(f"path must name a file, got {str(path)!r}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file() and not path.is_dir():
            with path.open("wb") as device:
                device.write(content)
        else:
            _replace(Path(os.path.realpath(path)) if path.is_symlink() else path, content)
    except OSError as error:
        raise OSError(error.errno, f"cannot be written: {error.strerror}", str(path)) from error


def _replace(path: Path, content: bytes) -> None:
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
