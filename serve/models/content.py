"""The bytes of a loaded file, in memory that nothing can change.

Every engine of a version gets these bytes, also an engine that is restarted: what was loaded is what serves,
whatever happens to the file.
"""

import fcntl
import hashlib
import mmap
import os
from dataclasses import dataclass, replace
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

from lensbox.common.errors import ArtifactError, no_such_artifact, system_reason

_MOST_BYTES = (1 << 31) - 1  # as `runtime.file.archive`
_SIGNATURE_BYTES = 65  # one more than a signature has
_PIECE = 1 << 20
# Of Linux' fcntl.h; Python 3.10 has no names for them.
_ADD_SEALS, _SEALS = 1033, 0x1 | 0x2 | 0x4 | 0x8  # no further seals, no shrinking, no growing, no writing


@dataclass(frozen=True)
class Content:
    """A file as it was read. path: where it lay. signature: content of PATH.sig, None if there was no file.

    stamp: the file's state at that time, see `stamp_of`. Any process may hold the memory, a sealed memfd.
    """

    path: Path
    sha256: str
    size: int
    signature: bytes | None
    stamp: tuple[int, ...]
    file: int

    def read(self) -> bytes:
        """Return the bytes."""
        if not self.size:
            return b""
        with mmap.mmap(self.file, self.size, access=mmap.ACCESS_READ) as memory:
            return memory[:]

    def copy(self) -> "Content":
        """Return another holder of the same memory."""
        return replace(self, file=os.dup(self.file))

    def close(self) -> None:
        """Free the memory, once no other process holds it."""
        os.close(self.file)

    def __reduce__(self) -> Any:
        return _received, (replace(self, file=-1).__dict__, DupFd(self.file))


def _received(values: dict[str, Any], file: Any) -> Content:
    return Content(**{**values, "file": file.detach()})


def read_content(path: Path) -> Content:
    """Copy a file and its signature to memory. Raises ArtifactError if the file cannot be read."""
    file = os.memfd_create("lensbox-artifact", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    digest, size = hashlib.sha256(), 0
    try:
        with path.open("rb") as source:
            stamp = stamp_of(os.fstat(source.fileno()))
            while piece := source.read(_PIECE):
                size += len(piece)
                if size > _MOST_BYTES:
                    raise ArtifactError(f"{path} must have at most {_MOST_BYTES} bytes, got more")
                digest.update(piece)
                rest = memoryview(piece)
                while rest:
                    rest = rest[os.write(file, rest) :]
        fcntl.fcntl(file, _ADD_SEALS, _SEALS)
        return Content(path, digest.hexdigest(), size, _signature_of(path), stamp, file)
    except FileNotFoundError as error:
        os.close(file)
        raise ArtifactError(no_such_artifact(path)) from error
    except OSError as error:
        os.close(file)
        raise ArtifactError(f"{path} cannot be read: {system_reason(error)}") from error
    except ArtifactError:
        os.close(file)
        raise


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hex. Raises OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def stamp_of(state: os.stat_result) -> tuple[int, ...]:
    """Return what changes with a file: its inode, size and time of change."""
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns


def _signature_of(path: Path) -> bytes | None:
    try:
        with path.with_name(f"{path.name}.sig").open("rb") as file:
            return file.read(_SIGNATURE_BYTES)
    except OSError:
        return None
