"""Files damaged at random: both runtimes refuse them in order, and the same ones.

The order of damages is fixed; how far a test gets is a matter of time: LENSBOX_FUZZ_SECONDS for each, 2 by
default. `make sanitize` takes more, with a C++ runtime that ends at the first access to memory not its own. A
file that is to blame stays in the test's folder.
"""

import itertools
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import PIL.Image
import pytest
from cpp_runtime.image_files import encoded, flat_jpeg, jpegs, noise, pngs
from damaged_files import DAMAGES, EDITS, damaged
from exif_files import broken_exif, exif, jpeg_with_exif, odd_exif, png_with_exif
from file_reader import FileReader
from image_mutations import mutated

from lensbox.errors import InputError
from lensbox.runtime.artifact_file import parse_artifact_file, read_entries
from lensbox.runtime.code_check import check_code
from lensbox.runtime.image_io import read_image
from lensbox.runtime.metadata import ArtifactMetadata

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


def refusal_in_python(data: bytes) -> str:
    """Why Python refuses an artifact before torch sees it; empty if it does not."""
    try:
        file = parse_artifact_file(read_entries(data))
        metadata = ArtifactMetadata.from_json(file.metadata.decode())
        for entry, code in file.code.items():
            check_code(entry, code, metadata.ops)
    except ValueError as error:
        return str(error) or type(error).__name__
    return ""


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
