"""Files damaged at random: both runtimes refuse them in order, and the same ones.

The order of damages is fixed; how far a test gets is a matter of time: LENSBOX_FUZZ_SECONDS for each, 2 by
default. `make sanitize` takes more, with a C++ runtime that ends at the first access to memory not its own. A
file that is to blame stays in the test's folder.
"""

import io
import itertools
import os
import random
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import PIL.Image
import pytest
from cpp_runtime.image_files import encoded, flat_jpeg, jpegs, noise, pngs
from damaged_files import DAMAGES, EDITS, archive_of, damaged, rewritten
from exif_files import broken_exif, exif, jpeg_with_exif, odd_exif, png_with_exif
from file_reader import FileReader
from image_mutations import mutated
from random_entries import random_code, random_pickle

from lensbox.common.errors import InputError
from lensbox.runtime.artifact_file import parse_artifact_file, read_entries
from lensbox.runtime.code_check import check_code
from lensbox.runtime.image_io import read_image
from lensbox.runtime.metadata import ArtifactMetadata
from lensbox.runtime.pickle_check import check_pickle

_SECONDS = float(os.environ.get("LENSBOX_FUZZ_SECONDS", "2"))
# Of the others, the bytes of the code may change: to what computes for ever, for example.
_LOADED = ("shuffle entries", "edit a pickle", "edit the metadata")


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[FileReader]:
    with FileReader(tmp_path / "log.txt") as reader:
        yield reader


def seeds() -> Iterator[int]:
    """0, 1, 2, ..., at least one, until the time is over."""
    end = time.monotonic() + _SECONDS
    yield 0
    yield from itertools.takewhile(lambda _: time.monotonic() < end, itertools.count(1))


def refusal(check: Callable[[], None]) -> str:
    """Why Python refuses what `check` looks at; empty if it does not."""
    try:
        check()
    except ValueError as error:
        return str(error) or type(error).__name__
    return ""


def refusal_in_python(data: bytes) -> str:
    """Why Python refuses an artifact before torch sees it; empty if it does not."""

    def check() -> None:
        file = parse_artifact_file(read_entries(data))
        metadata = ArtifactMetadata.from_json(file.metadata.decode())
        for entry, code in file.code.items():
            check_code(entry, code, metadata.ops)

    return refusal(check)


@pytest.mark.parametrize("kind", [*DAMAGES, *EDITS])
def test_both_refuse_the_same_artifacts(
    kind: str, reader: FileReader, artifact_path: Path, tmp_path: Path
) -> None:
    data = artifact_path.read_bytes()
    path = tmp_path / "damaged.pt"
    path.write_bytes(data)
    assert reader.outcome("load", path) == "read"
    for seed in seeds():
        content = damaged(data, kind, seed)
        path.write_bytes(content)
        reason = refusal_in_python(content)
        outcome = reader.outcome("info", path)
        assert (outcome == "read") == (reason == ""), f"{kind}, seed {seed}: Python: {reason}; C++: {outcome}"
        if not reason and kind in _LOADED:
            reader.outcome("load", path)


def pickle_refusal(content: bytes) -> str:
    return refusal(lambda: check_pickle(content, "data", {"data/0": bytes(64), "data/1": bytes(8)}))


def code_refusal(content: bytes) -> str:
    return refusal(lambda: check_code("code/x.py", content, []))


@pytest.mark.parametrize(
    ("how", "make", "in_python"),
    [("pickle", random_pickle, pickle_refusal), ("code", random_code, code_refusal)],
)
def test_both_refuse_the_same_entries(
    how: str,
    make: Callable[[random.Random], bytes],
    in_python: Callable[[bytes], str],
    reader: FileReader,
    tmp_path: Path,
) -> None:
    path = tmp_path / "entry"
    for seed in seeds():
        content = make(random.Random(seed))
        path.write_bytes(content)
        reason, outcome = in_python(content), reader.outcome(how, path)
        assert (outcome == "read") == (reason == ""), f"seed {seed}: Python: {reason}; C++: {outcome}"


def test_a_pickle_that_calls_often_with_much_is_soon_refused(reader: FileReader, tmp_path: Path) -> None:
    path = tmp_path / "entry"
    path.write_bytes(b"\x80\2(" + b"N" * 2_000_000 + b"tq\0c__torch__\nA\nq\1" + b"h\1h\0R" * 400_000 + b".")
    assert reader.outcome("pickle", path).startswith("refused: ")


NAMES = {
    "usual": ("d/extra/x", True),
    "no folder": ("/extra/x", False),
    "an entry that is a folder": ("d/extra/x/", False),
    "a control character": ("d/extra/\x7f", False),
    "a blank beyond ASCII": ("d/extra/\u00a0", True),
    "a separator of lines beyond ASCII": ("d/extra/\u2028", True),
    "code without a name": ("d/code/.py", False),
    "positions of code without a name": ("d/code/.debug_pkl", False),
    "a module": ("d/code/x.py", True),
}


def in_folder(folder: str, data: bytes, added: Iterable[str]) -> bytes:
    """The artifact with its entries in that folder, and empty ones of these names before them."""
    with zipfile.ZipFile(io.BytesIO(data)) as old:
        entries = [(folder + name[name.index("/") :], old.read(name)) for name in old.namelist()]
    return archive_of([*((name, b"") for name in added), *entries])


@pytest.mark.parametrize(
    ("folder", "added", "is_read"),
    [
        *(("" if name.startswith("/") else "d", [name], is_read) for name, is_read in NAMES.values()),
        ("d", ["d/extra/\u00e9", "d/extra/\u00c9"], True),  # torch ignores the capitals of ASCII alone
        ("d", ["d/extra/k", "d/extra/\u212a"], True),  # the sign of Kelvin, in Unicode a capital k
        ("d", ["d/extra/k", "d/extra/K"], False),
    ],
    ids=[*NAMES, "capitals beyond ASCII", "the sign of Kelvin", "capitals"],
)
def test_both_refuse_the_same_names(
    folder: str, added: list[str], is_read: bool, reader: FileReader, artifact_path: Path, tmp_path: Path
) -> None:
    path = tmp_path / "named.pt"
    content = in_folder(folder, artifact_path.read_bytes(), added)
    path.write_bytes(content)
    reason, outcome = refusal_in_python(content), reader.outcome("info", path)
    assert (reason == "", outcome == "read") == (is_read, is_read), f"Python: {reason}; C++: {outcome}"


@pytest.mark.parametrize("entry", ["data.pkl", "constants.pkl", "version", "extra/lensbox.json"])
def test_both_refuse_artifacts_without(
    entry: str, reader: FileReader, artifact_path: Path, tmp_path: Path
) -> None:
    def remove(entries: dict[str, bytes]) -> None:
        del entries[next(name for name in entries if name.partition("/")[2] == entry)]

    path = tmp_path / "without.pt"
    content = rewritten(artifact_path.read_bytes(), remove)
    path.write_bytes(content)
    assert refusal_in_python(content)
    assert reader.outcome("info", path).startswith("refused: ")


def photographs() -> list[bytes]:
    jpeg, png = encoded(noise("RGB", 60, 50), "JPEG"), encoded(noise("L", 30, 20), "PNG")
    broken = [*broken_exif().values(), *odd_exif().values(), exif(6)]
    return [
        *(file for _, file in jpegs(((95, 70), (320, 224)))),
        *(file for _, file in pngs()),
        flat_jpeg(200, 150, 12),
        *(jpeg_with_exif(jpeg, data) for data in broken),
        *(png_with_exif(png, data) for data in broken),
    ]


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning", "ignore::UserWarning")
def test_photographs_are_read_or_refused(reader: FileReader, tmp_path: Path) -> None:
    files = photographs()
    path = tmp_path / "photo"
    read = 0
    for seed in seeds():
        chance = random.Random(seed)
        file = mutated(chance.choice(files), chance)
        path.write_bytes(file)
        outcomes = {reader.outcome(how, path) for how in ("photo", "image")}
        assert all(outcome == "read" or f"image {path}: " in outcome for outcome in outcomes)
        read += "read" in outcomes
        try:
            read_image(file)
        except InputError:
            pass
        except PIL.Image.DecompressionBombError:
            pytest.fail(f"seed {seed}")
    assert read > 0
