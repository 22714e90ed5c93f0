"""Damage to files: flipped bits, changed entries of artifacts, random damage to images."""

import copy
import io
import itertools
import json
import random
import re
import struct
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from picture_files import SIGNATURE, chunk

from lensbox.runtime.file.seal import sealed_zip

Values = dict[str, Any]
Change = Callable[[dict[str, bytes]], None]


def with_bit_flipped(data: bytes, position: int, bit: int = 0) -> bytes:
    """position: of the byte; from the end where negative."""
    changed = bytearray(data)
    changed[position] ^= 1 << bit
    return bytes(changed)


# --- artifacts: all checksums and the seal stay right ---


def rewritten(data: bytes, change: Change) -> bytes:
    """Return the archive with its entries changed."""
    with zipfile.ZipFile(io.BytesIO(data)) as old:
        entries = {name: old.read(name) for name in old.namelist()}
    change(entries)
    return archive_of(entries.items())


def archive_of(entries: Iterable[tuple[str, bytes]]) -> bytes:
    """Return a sealed archive of (name, content) pairs, deflated unless it is a program."""
    content = io.BytesIO()
    pairs = list(entries)
    # A program is read where its entries lie in the file.
    is_program = any("/models/" in name for name, _ in pairs)
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED if is_program else zipfile.ZIP_DEFLATED) as new:
        for name, value in pairs:
            new.writestr(name, value)
    return sealed_zip(content.getvalue())


def seal(path: Path) -> None:
    """Seal an archive that `zipfile` wrote to a path."""
    path.write_bytes(sealed_zip(path.read_bytes()))


def with_metadata(change: Callable[[Values], object]) -> Change:
    """Return the change of the entries for a change of the values in lensbox.json."""

    def apply(entries: dict[str, bytes]) -> None:
        (name,) = (name for name in entries if name.endswith("/extra/lensbox.json"))
        document = json.loads(entries[name])
        change(document)
        entries[name] = json.dumps(document).encode()

    return apply


def put(path: str, value: Any) -> Callable[[Values], None]:
    """Set the value at a path such as 'self_test.expected.labels.0'."""

    def change(values: Any) -> None:
        *parents, last = path.split(".")
        for key in parents:
            values = values[int(key) if isinstance(values, list) else key]
        values[int(last) if isinstance(values, list) else last] = copy.deepcopy(value)

    return change


def compiled_for(**values: object) -> Change:
    return with_metadata(lambda document: document["compiled"].update(values))


def without(ending: str) -> Change:
    """Return the removal of the entries whose names end so."""

    def apply(entries: dict[str, bytes]) -> None:
        names = [name for name in entries if name.endswith(ending)]
        assert names
        for name in names:
            del entries[name]

    return apply


# --- images: random damage that passes signatures, and mostly checksums ---


def mutated(file: bytes, chance: random.Random) -> bytes:
    """Return the image file with one to three kinds of damage."""
    for _ in range(chance.randint(1, 3)):
        if file:
            file = chance.choice((_overwritten, _cut, _rearranged, _rearranged))(file, chance)
    return _repaired(file) if chance.random() < 0.7 else file


def _overwritten(file: bytes, chance: random.Random) -> bytes:
    """Change bits anywhere, or bytes of the header to mostly extreme values."""
    damaged = bytearray(file)
    for _ in range(chance.choice((1, 3))):
        damaged[chance.randrange(len(file))] ^= 1 << chance.randrange(8)
        header = chance.randrange(min(len(file), 120))
        damaged[header] = chance.choice((damaged[header], 0, 1, 127, 128, 255, chance.randrange(256)))
    return bytes(damaged)


def _cut(file: bytes, chance: random.Random) -> bytes:
    return file[: chance.randrange(len(file))]


def _rearranged(file: bytes, chance: random.Random) -> bytes:
    """Remove, repeat, swap, truncate or empty whole chunks or segments."""
    parts = _parts(file)
    one, other = chance.randrange(len(parts)), chance.randrange(len(parts))
    length = chance.choice((4, 12, len(parts[one]) // 2))
    parts[one : one + 1] = chance.choice(
        ([], [parts[one]] * chance.choice((2, 50)), [parts[other], parts[one]], [parts[one][:length]])
    )
    return b"".join(parts)


# Where parts begin: the length before a name in PNG files, names in WebP files, markers in JPEG files.
_PNG_CHUNK = rb"(?s).{4}(?=IHDR|PLTE|IDAT|IEND|tRNS|eXIf|pHYs|gAMA|iCCP|[itz]TXt|acTL|fcTL|fdAT)"
_WEBP_CHUNK = rb"VP8[ LX]|ALPH|ANIM|ANMF|EXIF|ICCP|XMP "
_JPEG_SEGMENT = rb"\xff[\xc0-\xcf\xd9-\xfe]"


def _parts(file: bytes) -> list[bytes]:
    """Return the chunks of a PNG or WebP file, the segments of a JPEG file, or eight parts of another."""
    pattern = _WEBP_CHUNK if file[8:12] == b"WEBP" else _JPEG_SEGMENT
    pattern = _PNG_CHUNK if file.startswith(SIGNATURE) else pattern
    cuts = [found.start() for found in re.finditer(pattern, file)]
    cuts = cuts or [len(file) * part // 8 for part in range(8)]
    return [file[begin:end] for begin, end in itertools.pairwise(sorted({0, len(file), *cuts}))]


def _repaired(file: bytes) -> bytes:
    """Correct the checksums and the length of the file, so that decoders read on."""
    if file[8:12] == b"WEBP":
        return file[:4] + struct.pack("<I", len(file) - 8) + file[8:]
    if not file.startswith(SIGNATURE):
        return file
    parts = [part for part in _parts(file)[1:] if len(part) >= 12]
    return file[:8] + b"".join(chunk(part[4:8], part[8:-4]) for part in parts)
