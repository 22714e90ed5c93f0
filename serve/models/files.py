"""The files of models: one artifact, or a folder with DIR/<name>/<version>.pt, .pt2 or .onnx.

The bytes of a loaded file are kept in memory that nothing can change. Every engine of a version gets these
bytes, also an engine that is restarted: what was loaded is what serves, whatever happens to the file.
"""

import fcntl
import hashlib
import mmap
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any, BinaryIO

from lensbox.common.errors import ArtifactError, no_such_artifact, reading, system_reason

_MOST_BYTES = (1 << 31) - 1  # as `runtime.file.archive`
_SIGNATURE_BYTES = 65  # one more than a signature has
_PIECE = 1 << 20
# Of Linux' fcntl.h; a Python that was built with an old glibc has no names for them.
_ADD_SEALS, _SEALS = 1033, 0x1 | 0x2 | 0x4 | 0x8  # no further seals, no shrinking, no growing, no writing
SUFFIXES = (".pt", ".pt2", ".onnx")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")
Stamp = tuple[int, ...]

ONE = ""
"""The key of the only model of a service with --artifact. The artifact's metadata have its name."""


class Catalogue:
    """The models and versions that lie on the disk now. Nothing is cached.

    artifact: the file of the only model, or None. models: the folder of models, or None. source: either.
    """

    def __init__(self, artifact: Path | None, models: Path | None) -> None:
        source = artifact or models
        assert source is not None
        self.source, self._models = source, models

    def names(self) -> list[str]:
        """Return the names of all models that have a version, in order. Raises ArtifactError."""
        if self._models is None:
            return [ONE]
        with reading(f"the folder of models {self._models}", ArtifactError):
            folders = sorted(path.name for path in self._models.iterdir() if path.is_dir())
        return [name for name in folders if _NAME.fullmatch(name) and self.versions(name)]

    def versions(self, name: str) -> Mapping[int, Path]:
        """Return the files of a model by version, the newest last. Raises ArtifactError.

        The file of a service with --artifact has no version of its own, and the number 0 here.
        """
        if self._models is None:
            return {0: self.source} if name == ONE else {}
        if not _NAME.fullmatch(name):
            return {}
        found: dict[int, Path] = {}
        try:
            files = sorted((self._models / name).iterdir())
        except OSError:  # no such folder
            return {}
        for path in files:
            if path.suffix in SUFFIXES and _NUMBER.fullmatch(path.stem):
                number = int(path.stem)
                if number in found:
                    rule = f"version {number} of {name!r} must be one file"
                    raise ArtifactError(f"{rule}, got {found[number].name} and {path.name}")
                found[number] = path
        return dict(sorted(found.items()))

    def choose(self, name: str, version: int | None) -> tuple[int, Path]:
        """Return number and file of a version, by default the newest. Raises ArtifactError."""
        if self._models is None and version is not None:
            raise ArtifactError(f"version must be left out for a service of one file, got {version}")
        versions = self.versions(name)
        if not versions:
            suffixes = ", ".join(SUFFIXES)
            raise ArtifactError(
                f"there is no {self.source / name}/<version>, a number with one of {suffixes}"
            )
        number = max(versions) if version is None else version
        if number not in versions:
            known = ", ".join(map(str, versions))
            raise ArtifactError(f"version of {name!r} must be one of {known}, got {number}")
        return number, versions[number]

    def newest(self) -> dict[str, Stamp]:
        """Return number and stamp of the newest version of each model. Raises ArtifactError and OSError."""
        chosen = {name: self.choose(name, None) for name in self.names()}
        return {name: (number, *stamp_of(path.stat())) for name, (number, path) in chosen.items()}

    def check(self) -> None:
        """Raise ArtifactError unless there is something to serve. Loading tells whether it is an artifact."""
        if self._models is None:
            if self.source.is_dir():
                raise ArtifactError(
                    f"artifact must be a file, got the folder {self.source}; --models takes folders"
                )
            if not self.source.is_file():
                raise ArtifactError(no_such_artifact(self.source))
        elif not self.names():
            raise ArtifactError(f"models must hold {self._models}/<name>/<version>.pt, got no such file")


@dataclass(frozen=True)
class Content:
    """A file as it was read. path: where it lay. signature: content of PATH.sig, None if there was no file.

    stamp: the file's state at that time, see `stamp_of`. Any process may hold the memory, a sealed memfd.
    """

    path: Path
    sha256: str
    size: int
    signature: bytes | None
    stamp: Stamp
    file: int

    def read(self) -> bytes:
        """Return the bytes."""
        if not self.size:
            return b""
        with mmap.mmap(self.file, self.size, access=mmap.ACCESS_READ) as memory:
            return memory[:]

    def change(self) -> Stamp:
        """Return the stamp of a file that has changed since it was read; an empty one without a change."""
        try:
            stamp = stamp_of(self.path.stat())
            return stamp if stamp != self.stamp and sha256_of(self.path) != self.sha256 else ()
        except OSError:
            return (0,)  # gone

    def close(self) -> None:
        """Free the memory, once no other process holds it."""
        os.close(self.file)

    def __reduce__(self) -> Any:
        return _received, (replace(self, file=-1).__dict__, DupFd(self.file))


def _received(values: dict[str, Any], file: Any) -> Content:
    return Content(**{**values, "file": file.detach()})


def read_content(path: Path) -> Content:
    """Copy a file and its signature to memory. Raises ArtifactError if the file cannot be read."""
    memory = os.memfd_create("lensbox-artifact", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with path.open("rb") as source, open(memory, "wb", closefd=False) as copy:
            stamp = stamp_of(os.fstat(source.fileno()))
            digest = _digest(source, copy)
            size = copy.tell()
        if size > _MOST_BYTES:
            raise ArtifactError(f"{path} must have at most {_MOST_BYTES} bytes, got more")
        fcntl.fcntl(memory, _ADD_SEALS, _SEALS)
        return Content(path, digest, size, _signature_of(path), stamp, memory)
    except (ArtifactError, OSError) as error:
        os.close(memory)
        if isinstance(error, FileNotFoundError):
            raise ArtifactError(no_such_artifact(path)) from error
        if isinstance(error, OSError):
            raise ArtifactError(f"{path} cannot be read: {system_reason(error)}") from error
        raise


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hex. Raises OSError."""
    with path.open("rb") as file:
        return _digest(file)


def _digest(source: BinaryIO, copy: BinaryIO | None = None) -> str:
    """Read a file to the end, at most one piece beyond the limit, and copy it. Return its SHA-256 in hex."""
    digest, size = hashlib.sha256(), 0
    while size <= _MOST_BYTES and (piece := source.read(_PIECE)):
        size += len(piece)
        digest.update(piece)
        if copy is not None:
            copy.write(piece)
    return digest.hexdigest()


def stamp_of(state: os.stat_result) -> Stamp:
    """Return what changes with a file: its inode, size and time of change."""
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns


def _signature_of(path: Path) -> bytes | None:
    try:
        with path.with_name(f"{path.name}.sig").open("rb") as file:
            return file.read(_SIGNATURE_BYTES)
    except OSError:
        return None
