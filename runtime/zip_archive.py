"""The zip archive that torch writes, read so strictly that every byte of it is accounted for or unused.

torch's own reader looks at no checksum and takes positions on trust. Python's `zipfile` checks more, but
forgives what torch reads differently: entries that overlap, bytes between them, two directories.
"""

import re
import struct
import zlib
from dataclasses import dataclass

# Before decompression; a file may hold less than that many bytes in all, or four times its own size.
MIN_CONTENT_LIMIT = 64 << 20
# Beyond it the format needs other fields, and no detector is so large.
MAX_FILE_SIZE = (1 << 31) - 1

_STORED, _DEFLATED = 0, 8
# The sizes follow the content; the name is UTF-8; how hard deflate tried.
_SIZES_FOLLOW = 0x0008
_KNOWN_FLAGS = 0x0800 | _SIZES_FOLLOW | 0x0006
# With this attribute, torch reads nothing and leaves the bytes of a weight uninitialised.
_DOS_FOLDER = 0x10

_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")

_LOCAL = struct.Struct("<4s5H3I2H")
_DESCRIPTOR = struct.Struct("<4s3I")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR = struct.Struct("<4sIQI")


class DamagedArchiveError(ValueError):
    """The bytes are no archive as torch writes it."""


@dataclass(frozen=True)
class _Entry:
    name: bytes
    flags: int
    method: int
    crc: int
    compressed_size: int
    size: int
    offset: int


def read_archive(data: bytes) -> dict[str, bytes]:
    """The content of each entry, by its name without the one folder that all lie in.

    Raises DamagedArchiveError unless there is nothing but entries, one behind the other, and a directory that
    agrees with them; no name occurs twice, in capitals or not; and every checksum is right.
    """
    start, entries = _read_directory(data)
    limit = max(MIN_CONTENT_LIMIT, 4 * len(data))
    if (total := sum(entry.size for entry in entries)) > limit:
        raise DamagedArchiveError(f"its entries would take {total} bytes, at most {limit} are read")
    contents: dict[str, bytes] = {}
    position, folders, lowered = 0, set(), set()
    for entry in sorted(entries, key=lambda entry: entry.offset):
        folder, name = _split(entry.name)
        if entry.offset != position:
            raise DamagedArchiveError(
                f"its entry {folder}/{name} begins at byte {entry.offset}, not at {position}"
            )
        contents[name], position = _read_entry(data, entry)
        folders.add(folder)
        lowered.add(name.encode().lower())  # torch finds entries without regard to ASCII's capitals
    if position != start:
        raise DamagedArchiveError(f"its directory begins at {start}, not at {position}")
    if len(lowered) != len(entries):
        raise DamagedArchiveError("two of its entries have the same name")
    if len(folders) > 1:
        raise DamagedArchiveError(f"its entries lie in {len(folders)} folders, not in one")
    return contents


def _read_directory(data: bytes) -> tuple[int, list[_Entry]]:
    """Where the directory begins, and what it says; its order is not that of the entries."""
    if len(data) < _END.size:
        raise DamagedArchiveError("it is truncated")
    end = len(data) - _END.size
    signature, disk, start_disk, disk_count, count, size, start, comment = _END.unpack_from(data, end)
    if signature != b"PK\5\6" or (disk, start_disk, comment) != (0, 0, 0) or disk_count != count:
        raise DamagedArchiveError("it is truncated, or its end is damaged")
    if data[end - _LOCATOR.size : end].startswith(b"PK\6\7"):
        end -= _LOCATOR.size + _END64.size
        if end < 0 or _LOCATOR.unpack_from(data, end + _END64.size) != (b"PK\6\7", 0, end, 1):
            raise DamagedArchiveError("its end is damaged")
        signature, rest, _, _, *fields = _END64.unpack_from(data, end)
        if (signature, rest) != (b"PK\6\6", _END64.size - 12) or fields != [0, 0, count, count, size, start]:
            raise DamagedArchiveError("its two ends disagree")
    if start + size != end:
        raise DamagedArchiveError("its directory does not lie before its end")
    entries = []
    position = start
    for _ in range(count):
        entry, position = _read_directory_entry(data, position, end)
        entries.append(entry)
    if position != end:
        raise DamagedArchiveError("its directory does not lie before its end")
    return start, entries


def _read_directory_entry(data: bytes, position: int, end: int) -> tuple[_Entry, int]:
    """One line of the directory, and where the next one begins."""
    if position + _CENTRAL.size > end:
        raise DamagedArchiveError("its directory is damaged")
    signature, _, _, flags, method, _, _, *numbers, disk, _, attributes, offset = _CENTRAL.unpack_from(
        data, position
    )
    crc, compressed_size, size, name, extra, comment = numbers
    position += _CENTRAL.size
    following = position + name + extra + comment
    if signature != b"PK\1\2" or disk != 0 or following > end:
        raise DamagedArchiveError("its directory is damaged")
    if attributes & _DOS_FOLDER:
        raise DamagedArchiveError("its directory marks an entry as a folder")
    entry = _Entry(data[position : position + name], flags, method, crc, compressed_size, size, offset)
    return entry, following


def _split(name: bytes) -> tuple[str, str]:
    """Folder and rest of a name."""
    try:
        text = name.decode()
    except UnicodeDecodeError as error:
        raise DamagedArchiveError(f"the name {name!r} of an entry is not UTF-8") from error
    folder, slash, rest = text.partition("/")
    if not (folder and slash and rest):
        raise DamagedArchiveError(f"its entry {text!r} does not lie in a folder")
    if _CONTROL.search(name) or rest.endswith("/"):
        raise DamagedArchiveError(f"it has the entry {text!r}, whose name is no file's")
    return folder, rest


def _read_entry(data: bytes, entry: _Entry) -> tuple[bytes, int]:
    """The content of an entry that begins at `entry.offset`, and where the next one begins."""
    name = entry.name.decode()
    if entry.flags & ~_KNOWN_FLAGS or entry.method not in (_STORED, _DEFLATED):
        raise DamagedArchiveError(f"its entry {name} is encrypted, or packed in a way that torch never uses")
    sizes = (entry.crc, entry.compressed_size, entry.size)
    start = entry.offset + _LOCAL.size
    if start > len(data):
        raise DamagedArchiveError(f"its entry {name} is truncated")
    signature, _, flags, method, _, _, *local_sizes, name_size, extra_size = _LOCAL.unpack_from(
        data, entry.offset
    )
    end = start + name_size + extra_size + entry.compressed_size
    if (
        (signature, flags, method) != (b"PK\3\4", entry.flags, entry.method)
        or data[start : start + name_size] != entry.name
        or (tuple(local_sizes) != sizes and not (flags & _SIZES_FOLLOW and local_sizes == [0, 0, 0]))
    ):
        raise DamagedArchiveError(f"its directory and its entry {name} disagree")
    packed = data[start + name_size + extra_size : end]
    if flags & _SIZES_FOLLOW:
        if data[end : end + _DESCRIPTOR.size] != _DESCRIPTOR.pack(b"PK\7\b", *sizes):
            raise DamagedArchiveError(f"its directory and the sizes behind its entry {name} disagree")
        end += _DESCRIPTOR.size
    content = packed if entry.method == _STORED else _inflate(packed, entry.size, name)
    if len(content) != entry.size:
        raise DamagedArchiveError(f"its entry {name} is not as long as the directory says")
    if zlib.crc32(content) != entry.crc:
        raise DamagedArchiveError(f"its entry {name} has a wrong checksum")
    return content, end


def _inflate(packed: bytes, size: int, name: str) -> bytes:
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        content = inflater.decompress(packed, size + 1)
    except zlib.error as error:
        raise DamagedArchiveError(f"its entry {name} cannot be decompressed: {error}") from error
    if not inflater.eof or inflater.unused_data:
        raise DamagedArchiveError(f"its entry {name} is not as long as the directory says")
    return content
