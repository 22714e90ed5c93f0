"""The archive, read strictly: what torch, Python and others write, and every damage."""

import io
import struct
import zipfile
from collections.abc import Callable

import pytest

from lensbox.runtime.zip_archive import DamagedArchiveError, read_archive

ENTRIES = [("a/version", b"3\n"), ("a/code/x.py", b"pass\n" * 100), ("a/empty", b"")]


def archive(method: int = zipfile.ZIP_DEFLATED, entries: list[tuple[str, bytes]] = ENTRIES) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", method) as new:
        for name, value in entries:
            new.writestr(name, value)
    return content.getvalue()


class Unseekable(io.RawIOBase):
    """Makes zipfile write sizes behind the content, as torch does."""

    def __init__(self) -> None:
        self.content = b""

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self.content += bytes(data)
        return len(data)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_stored_and_deflated(method: int) -> None:
    assert read_archive(archive(method)) == {name[2:]: value for name, value in ENTRIES}


def test_sizes_behind_the_content() -> None:
    stream = Unseekable()
    with zipfile.ZipFile(stream, "w") as new:
        for name, value in ENTRIES:
            new.writestr(name, value)
    assert read_archive(stream.content) == {name[2:]: value for name, value in ENTRIES}


def replaced(old: bytes, new: bytes, count: int = -1) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        assert old in data
        return data.replace(old, new, count)

    return change


def patched(signature: bytes, offset: int, value: int, form: str = "<I") -> Callable[[bytes], bytes]:
    """Another number in the first header with this signature."""

    def change(data: bytes) -> bytes:
        changed = bytearray(data)
        struct.pack_into(form, changed, data.index(signature) + offset, value)
        return bytes(changed)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(lambda data: data[:-1], "truncated", id="cut"),
        pytest.param(lambda data: data + b"\0", "truncated", id="longer"),
        pytest.param(lambda data: b"\0" + data, "its directory", id="shifted"),
        pytest.param(lambda data: b"PK", "truncated", id="nearly empty"),
        pytest.param(replaced(b"3\n", b"4\n"), "a/version has a wrong checksum", id="content"),
        pytest.param(replaced(b"a/version", b"a/versiom", 1), "a/version disagree", id="local name"),
        pytest.param(replaced(b"a/version", b"b/version"), "lie in 2 folders", id="folder"),
        pytest.param(replaced(b"a/empty", b"aaempty"), "does not lie in a folder", id="no folder"),
        pytest.param(replaced(b"a/empty", b"a/\xff\xffpty"), "is not UTF-8", id="name"),
        pytest.param(patched(b"PK\3\4", 6, 1, "<H"), "disagree", id="local flags"),
        pytest.param(patched(b"PK\1\2", 8, 1, "<H"), "is encrypted", id="encrypted"),
        pytest.param(patched(b"PK\1\2", 10, 12, "<H"), "packed in a way", id="bzip2"),
        pytest.param(patched(b"PK\3\4", 14, 7), "disagree", id="local crc"),
        pytest.param(patched(b"PK\1\2", 16, 7), "disagree", id="crc"),
        pytest.param(patched(b"PK\1\2", 24, 1 << 30), "its entries would take", id="size"),
        pytest.param(patched(b"PK\1\2", 34, 1, "<H"), "directory is damaged", id="disk"),
        pytest.param(patched(b"PK\1\2", 38, 0x10, "<H"), "marks an entry as a folder", id="folder attribute"),
        pytest.param(patched(b"PK\1\2", 42, 5), "begins at byte", id="offset"),
        pytest.param(patched(b"PK\5\6", 8, 2, "<H"), "its end is damaged", id="count"),
        pytest.param(patched(b"PK\5\6", 12, 1), "does not lie before its end", id="directory size"),
        pytest.param(patched(b"PK\5\6", 16, 0), "does not lie before its end", id="directory offset"),
    ],
)
def test_damage(change: Callable[[bytes], bytes], message: str) -> None:
    with pytest.raises(DamagedArchiveError, match=message):
        read_archive(change(archive(zipfile.ZIP_STORED)))


def test_deflated_damage() -> None:
    data = bytearray(archive(zipfile.ZIP_DEFLATED, [("a/x", bytes(range(256)) * 40)]))
    for position in range(40, 300, 7):
        changed = bytearray(data)
        changed[position] ^= 0x10
        with pytest.raises(DamagedArchiveError):
            read_archive(bytes(changed))


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("second", ["a/version", "a/VERSION"])
def test_two_entries_of_one_name(second: str) -> None:
    with pytest.raises(DamagedArchiveError, match="the same name"):
        read_archive(archive(entries=[("a/version", b"1"), (second, b"2")]))


def test_entries_that_overlap() -> None:
    # The second line of the directory names the first entry again.
    data = archive(zipfile.ZIP_STORED, [("a/x", b"1"), ("a/y", b"2")])
    second = data.index(b"PK\1\2", data.index(b"PK\1\2") + 1)
    changed = bytearray(data)
    struct.pack_into("<I", changed, second + 42, 0)
    with pytest.raises(DamagedArchiveError, match="begins at byte 0"):
        read_archive(bytes(changed))


def test_bytes_between_entries() -> None:
    data = archive(zipfile.ZIP_STORED, [("a/x", b"1"), ("a/y", b"2")])
    second = data.index(b"PK\3\4", 4)
    gap = bytearray(data[:second] + b"gap" + data[second:])
    struct.pack_into("<I", gap, gap.index(b"PK\5\6") + 16, data.index(b"PK\1\2") + 3)
    line = gap.index(b"PK\1\2", gap.index(b"PK\1\2") + 1)
    struct.pack_into("<I", gap, line + 42, second + 3)
    with zipfile.ZipFile(io.BytesIO(gap)) as lenient:
        assert lenient.read("a/y") == b"2"
    with pytest.raises(DamagedArchiveError, match=f"a/y begins at byte {second + 3}, not at {second}"):
        read_archive(bytes(gap))


def test_what_inflates_beyond_the_limit_is_refused_before_it_does() -> None:
    data = archive(zipfile.ZIP_DEFLATED, [("a/zeros", bytes((64 << 20) + 1))])
    assert len(data) < 100_000
    with pytest.raises(DamagedArchiveError, match=r"would take 67108865 bytes, at most 67108864"):
        read_archive(data)


def test_a_size_that_lies_is_noticed_without_inflating() -> None:
    data = bytearray(archive(zipfile.ZIP_DEFLATED, [("a/zeros", bytes(1 << 20))]))
    for signature, offset in ((b"PK\3\4", 22), (b"PK\1\2", 24)):
        struct.pack_into("<I", data, data.index(signature) + offset, 100)
    with pytest.raises(DamagedArchiveError, match="a/zeros is not as long as the directory says"):
        read_archive(bytes(data))
