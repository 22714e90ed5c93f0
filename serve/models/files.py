"""The files of models: one artifact, or a folder with DIR/<name>/<version>.pt, .pt2 or .onnx.

A version number in DIR/<name>/pin stands for the newest version. Only regular files are read.

The bytes of a loaded file are kept in memory that nothing can change. Every engine of a version gets these
bytes, also an engine that is restarted: what was loaded is what serves, whatever happens to the file.
"""

import fcntl
import hashlib
import mmap
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from lensbox.common.errors import ArtifactError, no_such_artifact, reading, system_reason
from lensbox.common.files import open_regular

_MOST_BYTES = (1 << 31) - 1  # as `runtime.file.archive`
_SIGNATURE_BYTES = 65  # one more than a signature has
_PIN_BYTES = 64
_PIECE = 1 << 20
# Of Linux' fcntl.h; a Python that was built with an old glibc has no names for them.
_ADD_SEALS, _SEALS = 1033, 0x1 | 0x2 | 0x4 | 0x8  # no further seals, no shrinking, no growing, no writing
SUFFIXES = (".pt", ".pt2", ".onnx")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")
Stamp = tuple[int, ...]

UNNAMED = ""
"""The key of the only model of a service with --artifact. The artifact's metadata have its name."""


class NoModelError(ArtifactError):
    """There is no folder with a version."""


class Choice(NamedTuple):
    """A version to load. latest: number and stamp of the pinned version, or else of the newest one."""

    number: int
    path: Path
    latest: tuple[int, Stamp]
    is_pinned: bool

    def is_news(self, noted: tuple[int, Stamp]) -> bool:
        """Return whether a load without a request is due. noted: `latest` of the last load."""
        number, stamp = self.latest
        return self.is_pinned or number > noted[0] or (number == noted[0] and stamp != noted[1])


class Catalogue:
    """The models and versions that lie on the disk now. Nothing is cached.

    artifact: the file of the only model, or None. models: the folder of models, or None. source: either.
    """

    def __init__(self, artifact: Path | None, models: Path | None) -> None:
        source = artifact or models
        assert source is not None
        self.source, self._models = source, models

    def names(self) -> list[str]:
        """Return the names of all models that have a version, in order. Raise ArtifactError."""
        if self._models is None:
            return [UNNAMED]
        with reading(f"the folder of models {self._models}", ArtifactError):
            folders = sorted(path.name for path in self._models.iterdir() if path.is_dir())
        return [name for name in folders if _NAME.fullmatch(name) and self.versions(name)]

    def versions(self, name: str) -> Mapping[int, list[Path]]:
        """Return the files of a model by version, the newest last; each version should be one file.

        The file of a service with --artifact has no version of its own, and the number 0 here.
        """
        if self._models is None:
            return {0: [self.source]} if name == UNNAMED else {}
        if not _NAME.fullmatch(name):
            return {}
        found: dict[int, list[Path]] = {}
        try:
            files = sorted((self._models / name).iterdir())
        except OSError:  # no such folder
            return {}
        for path in files:
            if path.suffix in SUFFIXES and _NUMBER.fullmatch(path.stem):
                found.setdefault(int(path.stem), []).append(path)
        return dict(sorted(found.items()))

    def choose(self, name: str, version: int | None) -> Choice:
        """Return a version, by default the pinned or else the newest one. Raise ArtifactError."""
        if self._models is None and version is not None:
            raise ArtifactError(f"version must be left out for a service of one file, got {version}")
        versions = self.versions(name)
        if not versions:
            suffixes = ", ".join(SUFFIXES)
            raise NoModelError(f"there is no {self.source / name}/<version>, a number with one of {suffixes}")
        pinned = self._pinned(name) if version is None else None
        latest = pinned or max(versions)
        number = latest if version is None else version
        if number not in versions:
            known = ", ".join(map(str, versions))
            raise ArtifactError(f"version of {name!r} must be one of {known}, got {number}")
        path, *others = versions[number]
        if others:
            rule = f"version {number} of {name!r} must be one file"
            raise ArtifactError(f"{rule}, got {path.name} and {others[0].name}")
        newest = versions[latest][0]
        with reading(newest, ArtifactError):
            return Choice(number, path, (latest, stamp_of(newest.stat())), pinned is not None)

    def check(self) -> None:
        """Raise ArtifactError unless there is something to serve. Loading tells whether it is an artifact."""
        if self._models is None:
            if self.source.is_dir():
                raise ArtifactError(
                    f"artifact must be a file, got the folder {self.source}; --models takes folders"
                )
            if not self.source.exists():
                raise ArtifactError(no_such_artifact(self.source))
        elif not self.names():
            raise ArtifactError(f"models must hold {self._models}/<name>/<version>.pt, got no such file")

    def _pinned(self, name: str) -> int | None:
        """Return the version in the file `pin` of a model; None without one. Raise ArtifactError."""
        path = self.source / name / "pin"
        if self._models is None or not path.exists():
            return None
        with reading(str(path), ArtifactError), open_regular(path) as file:
            text = file.read(_PIN_BYTES).decode("utf-8", "replace").strip()
        if not _NUMBER.fullmatch(text):
            raise ArtifactError(f"{path} must hold a version number, got {text!r}")
        return int(text)


@dataclass(frozen=True)
class Content:
    """A file as it was read. path: where it lay. signature: content of PATH.sig, None if there was no file.

    stamp: the file's state at that time, see `stamp_of`. file: the memory, a sealed memfd, which any process
    may hold; in another process, its own number.
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

    def close(self) -> None:
        """Free the memory, once no other process holds it."""
        os.close(self.file)


def read_content(path: Path) -> Content:
    """Copy a file and its signature to memory. Raise ArtifactError if the file cannot be read."""
    memory = os.memfd_create("lensbox-artifact", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with open_regular(path) as source, open(memory, "wb", closefd=False) as copy:
            stamp = stamp_of(os.fstat(source.fileno()))
            digest, size = hashlib.sha256(), 0
            while size <= _MOST_BYTES and (piece := source.read(_PIECE)):
                size += copy.write(piece)
                digest.update(piece)
        if size > _MOST_BYTES:
            raise ArtifactError(f"{path} must have at most {_MOST_BYTES} bytes, got more")
        fcntl.fcntl(memory, _ADD_SEALS, _SEALS)
        return Content(path, digest.hexdigest(), size, _signature_of(path), stamp, memory)
    except (ArtifactError, OSError) as error:
        os.close(memory)
        if isinstance(error, FileNotFoundError):
            raise ArtifactError(no_such_artifact(path)) from error
        if isinstance(error, OSError):
            raise ArtifactError(f"{path} cannot be read: {system_reason(error)}") from error
        raise


def stamp_of(state: os.stat_result) -> Stamp:
    """Return what changes with a file: its inode, size and time of change."""
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns


def _signature_of(path: Path) -> bytes | None:
    try:
        with open_regular(path.with_name(f"{path.name}.sig")) as file:
            return file.read(_SIGNATURE_BYTES)
    except OSError:
        return None
