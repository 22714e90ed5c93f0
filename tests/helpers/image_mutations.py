"""Random damage to image files that passes signatures and checksums."""

import itertools
import random
import re
import struct

from png_files import chunk


def mutated(file: bytes, chance: random.Random) -> bytes:
    """Return the file with one to three kinds of damage."""
    for _ in range(chance.randint(1, 3)):
        if not file:
            return file
        damage = chance.choice((_flip, _overwrite, _truncate, _surgery, _surgery, _surgery))
        file = damage(file, chance)
    return _repaired(file) if chance.random() < 0.7 else file


def _flip(file: bytes, chance: random.Random) -> bytes:
    damaged = bytearray(file)
    for _ in range(chance.choice((1, 1, 8))):
        damaged[chance.randrange(len(file))] ^= 1 << chance.randrange(8)
    return bytes(damaged)


def _overwrite(file: bytes, chance: random.Random) -> bytes:
    """Change bytes of the header, mostly to extreme values."""
    damaged = bytearray(file)
    for _ in range(chance.choice((1, 3))):
        value = chance.choice((0, 1, 127, 128, 255, chance.randrange(256)))
        damaged[chance.randrange(min(len(file), 120))] = value
    return bytes(damaged)


def _truncate(file: bytes, chance: random.Random) -> bytes:
    return file[: chance.randrange(len(file))]


def _surgery(file: bytes, chance: random.Random) -> bytes:
    """Remove, repeat, swap, truncate or empty whole chunks."""
    parts = _parts(file, chance)
    one, other = chance.randrange(len(parts)), chance.randrange(len(parts))
    operation = chance.randrange(5)
    if operation == 0:
        del parts[one]
    elif operation == 1:
        parts[one:one] = [parts[other]] * chance.choice((1, 2, 50))
    elif operation == 2:
        parts[one], parts[other] = parts[other], parts[one]
    elif operation == 3:
        parts[one] = parts[one][: chance.randint(0, len(parts[one]))]
    elif _is_png(file):
        parts[one] = chunk(parts[one][4:8])
    else:
        parts[one] = parts[one][:4]
    return b"".join(parts)


def _parts(file: bytes, chance: random.Random) -> list[bytes]:
    """Return the chunks or segments of a PNG, WebP or JPEG file, or random parts of another file."""
    if _is_png(file):
        cuts = _chunk_ends(file, 8, ">", 12)
    elif _is_webp(file):
        cuts = _chunk_ends(file, 12, "<", 8)
    elif file.startswith(b"\xff\xd8"):
        cuts = [found.start() for found in re.finditer(rb"\xff[\xc0-\xcf\xd9-\xfe]", file)]
    else:
        cuts = [chance.randrange(len(file)) for _ in range(8)]
    cuts = sorted({0, len(file), *cuts})
    return [file[begin:end] for begin, end in itertools.pairwise(cuts)]


def _chunk_ends(file: bytes, at: int, order: str, overhead: int) -> list[int]:
    ends = [at]
    while at + 8 <= len(file):
        (length,) = struct.unpack_from(f"{order}I", file, at + (0 if order == ">" else 4))
        at += overhead + length + (length % 2 if order == "<" else 0)
        ends.append(min(at, len(file)))
    return ends


def _repaired(file: bytes) -> bytes:
    """Correct the checksums and the length of the file, so that decoders read on."""
    if _is_webp(file):
        return file[:4] + struct.pack("<I", len(file) - 8) + file[8:]
    if not _is_png(file):
        return file
    ends = _chunk_ends(file, 8, ">", 12)
    parts = [file[begin:end] for begin, end in itertools.pairwise(ends)]
    return file[:8] + b"".join(chunk(part[4:8], part[8:-4]) for part in parts if len(part) >= 12)


def _is_png(file: bytes) -> bool:
    return file.startswith(b"\x89PNG\r\n\x1a\n")


def _is_webp(file: bytes) -> bool:
    return file[8:12] == b"WEBP"
