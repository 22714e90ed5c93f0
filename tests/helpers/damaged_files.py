"""Artifacts with changed entries or flipped bits."""

import io
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

from lensbox.artifact.seal import sealed_zip


def rewritten(data: bytes, change: Callable[[dict[str, bytes]], None]) -> bytes:
    """Return the archive with its entries changed, all checksums and the seal right."""
    with zipfile.ZipFile(io.BytesIO(data)) as old:
        entries = {name: old.read(name) for name in old.namelist()}
    change(entries)
    return archive_of(entries.items())


def archive_of(entries: Iterable[tuple[str, bytes]]) -> bytes:
    """Return a sealed archive of (name, content) pairs, deflated."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as new:
        for name, value in entries:
            new.writestr(name, value)
    return sealed_zip(content.getvalue())


def seal(path: Path) -> None:
    """Seal an archive that `zipfile` wrote to a path."""
    path.write_bytes(sealed_zip(path.read_bytes()))


def with_bit_flipped(data: bytes, position: int, bit: int = 0) -> bytes:
    """position: of the byte; from the end where negative."""
    changed = bytearray(data)
    changed[position] ^= 1 << bit
    return bytes(changed)
