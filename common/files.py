"""Read files, and refuse those that never end; write files atomically; check that files can be written."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from lensbox.common.errors import OutputError, system_reason

MOST_PIPED = 1 << 28  # bytes of a pipe or a device, which may never end; the C++ runner has the same limit


def open_regular(path: str | Path) -> BinaryIO:
    """Open a regular file to read. Raise OSError, also for a pipe or a device."""
    file = open_input(path)
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise OSError(errno.EINVAL, "it must be a regular file", str(path))


def open_input(path: str | Path) -> BinaryIO:
    """Open a file, or a pipe such as a shell's `<(...)`. A pipe without a writer is empty. Raise OSError."""
    # Opening a pipe would wait for a writer; Windows lacks the flag.
    flag = getattr(os, "O_NONBLOCK", 0)
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | flag))  # noqa: SIM115
    if flag:
        os.set_blocking(file.fileno(), True)
    return file


def read_regular(path: str | Path) -> bytes:
    """Return the content of a regular file. Raise OSError."""
    with open_regular(path) as file:
        return file.read()


def read_input(path: str | Path) -> bytes:
    """Return the content of a regular file, or of a pipe with up to MOST_PIPED bytes. Raise OSError."""
    with open_input(path) as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return file.read()
        content = file.read(MOST_PIPED + 1)
    if len(content) > MOST_PIPED:
        raise OSError(errno.EFBIG, f"a pipe or device must have at most {MOST_PIPED} bytes", str(path))
    return content


def atomic_write(path: str | Path, content: bytes) -> None:
    """Write a file atomically: the whole file appears, or the old file stays. Create missing folders.

    The content is flushed to disk before the file gets its name. A killed process may leave
    `NAME.PID.partial`. For a symbolic link the target is replaced; devices and pipes are written to. Raise
    OSError that names the file.
    """
    path = Path(path)
    if path.name in ("", ".."):
        raise IsADirectoryError(f"path must name a file, got {str(path)!r}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file() and not path.is_dir():
            path.write_bytes(content)
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


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a private folder, and remove the folder afterwards. Raise OSError that names TMPDIR."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="lensbox-")
    except OSError as error:
        message = f"TMPDIR must name a folder that can be written: {system_reason(error)}"
        raise OSError(error.errno, message, error.filename) from error
    with folder as name:
        yield Path(name)


def require_writable_file(option: str, path: Path) -> None:
    """Create the folder of a file to write later. Raise OutputError, which names the option, on failure."""
    with contextlib.suppress(OSError):  # a folder without permission: the next line reports it
        if path.is_dir():
            raise OutputError(f"{option} must be a file, got the folder {path}")
    _require_writable(option, "a file", path.parent, path)


def require_writable_folder(option: str, path: Path) -> None:
    """Create a folder to write to later. Raise OutputError, which names the option, on failure."""
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
