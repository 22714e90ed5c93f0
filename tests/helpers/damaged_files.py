"""Artifacts damaged in every way that comes to mind, from a seed."""

import io
import json
import random
import struct
import zipfile
from collections.abc import Callable, Iterable

Damage = Callable[[bytes, random.Random], bytes]


def rewritten(data: bytes, change: Callable[[dict[str, bytes]], None]) -> bytes:
    """The archive with its entries changed, all checksums right."""
    with zipfile.ZipFile(io.BytesIO(data)) as old:
        entries = {name: old.read(name) for name in old.namelist()}
    change(entries)
    return archive_of(entries.items())


def archive_of(entries: Iterable[tuple[str, bytes]]) -> bytes:
    """An archive of (name, content) pairs, deflated."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as new:
        for name, value in entries:
            new.writestr(name, value)
    return content.getvalue()


def with_bit_flipped(data: bytes, position: int, bit: int = 0) -> bytes:
    """position: of the byte; from the end where negative."""
    changed = bytearray(data)
    changed[position] ^= 1 << bit
    return bytes(changed)


def flip_bits(data: bytes, rng: random.Random, count: int = 1) -> bytes:
    changed = bytearray(data)
    for _ in range(count):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def flip_many(data: bytes, rng: random.Random) -> bytes:
    return flip_bits(data, rng, rng.randrange(2, 200))


def flip_outside_the_weights(data: bytes, rng: random.Random) -> bytes:
    """In headers, metadata, code and pickles: the weights are most of a file."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        infos = archive.infolist()
        start = archive.start_dir
    info = rng.choice(infos)
    if rng.random() < 0.4:
        position = rng.randrange(start, len(data))
    elif rng.random() < 0.5:
        position = info.header_offset + rng.randrange(60)
    else:
        small = rng.choice([info for info in infos if "constants/" not in info.filename])
        position = small.header_offset + rng.randrange(30 + len(small.filename) + small.compress_size)
    changed = bytearray(data)
    changed[min(position, len(data) - 1)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def splice(data: bytes, rng: random.Random) -> bytes:
    """Bytes inserted, removed, repeated or zeroed."""
    position, size = rng.randrange(len(data)), rng.randrange(1, 5000)
    middle = rng.choice(
        [b"", bytes(size), rng.randbytes(size), data[position : position + size] * 2, b"PK\5\6" + bytes(18)]
    )
    return data[:position] + middle + data[position + rng.choice([0, size]) :]


def edit_directory(data: bytes, rng: random.Random) -> bytes:
    """Another number in a field of the directory or the end."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        start = archive.start_dir
    changed = bytearray(data)
    position = rng.randrange(start, len(data) - 8)
    form = rng.choice(["<H", "<I", "<Q"])
    limit = 1 << (8 * struct.calcsize(form))
    value = rng.choice([0, 1, limit - 1, limit // 2, rng.randrange(limit), len(data) % limit, start % limit])
    struct.pack_into(form, changed, position, value)
    return bytes(changed)


def shuffle_entries(data: bytes, rng: random.Random) -> bytes:
    """Entries left out, doubled, renamed or exchanged, all checksums right."""
    with zipfile.ZipFile(io.BytesIO(data)) as old:
        entries = [(name, old.read(name)) for name in old.namelist()]
    index, other = rng.randrange(len(entries)), rng.randrange(len(entries))
    name, content = entries[index]
    action = rng.randrange(5)
    if action == 0:
        del entries[index]
    elif action == 1:
        folder, _, rest = name.partition("/")
        entries[index] = (rng.choice([rest, f"other/{rest}", f"{folder}/{rest}x", name.upper()]), content)
    elif action == 2:
        folder, _, _ = name.partition("/")
        new = rng.choice(
            ["model.json", "code/x.py", "bytecode.pkl", "extra/lensbox.json/x", "data/0", "../x"]
        )
        entries.append((f"{folder}/{new}", content))
    elif action == 3:
        entries[index], entries[other] = (name, entries[other][1]), (entries[other][0], content)
    else:
        entries[index] = (name, content[: rng.randrange(len(content) + 1)])
    return archive_of(entries)


def edit_pickle(data: bytes, rng: random.Random) -> bytes:
    """A few bytes of a pickle changed, inserted or removed, its checksum right."""

    def change(entries: dict[str, bytes]) -> None:
        name = rng.choice([name for name in entries if name.endswith("pkl")])
        content = bytearray(entries[name])
        for _ in range(rng.randrange(1, 4)):
            position = rng.randrange(len(content))
            new = bytes([rng.choice([rng.randrange(256), *b"(.tQRcbqhjKJM}]a\x81\x85\x86"])])
            content[position : position + rng.choice([0, 1, 1, 1, 4])] = rng.choice([new, new, b""])
        entries[name] = bytes(content)

    return rewritten(data, change)


def edit_metadata(data: bytes, rng: random.Random) -> bytes:
    """One value of lensbox.json replaced by something else, its checksum right."""

    def change(entries: dict[str, bytes]) -> None:
        name = next(name for name in entries if name.endswith("lensbox.json"))
        document = json.loads(entries[name])
        node = document
        while True:
            key = rng.choice(list(node)) if isinstance(node, dict) else rng.randrange(len(node))
            if isinstance(node[key], (dict, list)) and node[key] and rng.random() < 0.8:
                node = node[key]
                continue
            node[key] = rng.choice(
                [None, True, -1, 0, 2**40, 1e300, "x", "[" * 50, [], [[]], {}, 1.5, [1] * 7, -0.5, 10**400]
            )
            break
        entries[name] = json.dumps(document).encode()

    return rewritten(data, change)


def edit_text(data: bytes, rng: random.Random) -> bytes:
    """Bytes of lensbox.json or of the code changed, the checksum right."""

    def change(entries: dict[str, bytes]) -> None:
        name = rng.choice([name for name in entries if name.endswith((".json", ".py"))])
        content = bytearray(entries[name])
        for _ in range(rng.randrange(1, 3)):
            position = rng.randrange(len(content))
            content[position] = rng.choice([rng.randrange(256), *b'"()[]{},.:#\\ \n0x'])
        entries[name] = bytes(content)

    return rewritten(data, change)


# Of these, what is accepted must give the very answers of the undamaged file: checksums are in the way.
DAMAGES: dict[str, Damage] = {
    "flip a bit": flip_bits,
    "flip bits": flip_many,
    "flip a bit outside the weights": flip_outside_the_weights,
    "truncate": truncate,
    "splice": splice,
    "edit the directory": edit_directory,
}
# Of these, the checksums are right: another file, which may be a good one. It must only be refused in order.
EDITS: dict[str, Damage] = {
    "shuffle entries": shuffle_entries,
    "edit a pickle": edit_pickle,
    "edit the metadata": edit_metadata,
    "edit a text": edit_text,
}


def damaged(data: bytes, kind: str, seed: int) -> bytes:
    """The file with one damage; the same for the same seed."""
    return {**DAMAGES, **EDITS}[kind](data, random.Random(f"{kind} {seed}"))
