"""What lies in an artifact's file, checked before torch sees it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lensbox.runtime.pickle_check import DamagedPickleError, check_pickle
from lensbox.runtime.zip_archive import DamagedArchiveError, read_archive

METADATA_FILE = "lensbox.json"
METADATA_ENTRY = f"extra/{METADATA_FILE}"
LIBRARIES = "extra/ops/"
MAX_METADATA_SIZE = 16 << 20
# All sources, and all pickles, together: checking takes hundreds of times their size in memory.
MAX_CODE_SIZE = MAX_PICKLES_SIZE = 4 << 20

# What torch writes. Its reader knows others, such as older formats with code in other places.
_ENTRY = re.compile(
    r"data\.pkl|constants\.pkl|version|byteorder|\.data/(version|serialization_id)"
    r"|(data|constants)/[0-9]+|code/.+\.(py|debug_pkl)|extra/.+",
    re.ASCII,
)
_PICKLE = re.compile(r"data\.pkl|constants\.pkl|code/.+\.debug_pkl")
_CODE = re.compile(r"code/.+\.py")


@dataclass(frozen=True)
class ArtifactFile:
    """metadata: the bytes of `lensbox.json`; code: each TorchScript source, by the name of its entry;
    libraries: each file of `extra/ops/`, by its name there."""

    metadata: bytes
    code: dict[str, bytes]
    libraries: dict[str, bytes]


def read_entries(data: bytes) -> dict[str, bytes]:
    """The content of each entry of an artifact's archive.

    Raises ValueError, to be read after the file's name, unless it is an undamaged archive as torch writes it.
    """
    if not data.startswith(b"PK"):
        if data[8:9] == b"{":  # after the length of a safetensors file's header
            raise ValueError(
                "is not a TorchScript file but holds weights: `lensbox export --weights` takes it"
            )
        if not data:
            raise ValueError("is not a TorchScript file: it is empty")
        if data.startswith((b"\xff\xd8\xff", b"\x89PNG")):
            raise ValueError("is not a TorchScript file but an image")
        raise ValueError("is not a TorchScript file, which is a zip archive")
    try:
        return read_archive(data)
    except DamagedArchiveError as error:
        raise ValueError(f"is damaged: {error}") from error


def checked_metadata(entries: Mapping[str, bytes]) -> bytes:
    """The bytes of `lensbox.json`. Raises ValueError, to be read after the file's name."""
    metadata = entries.get(METADATA_ENTRY)
    if metadata is None:
        raise ValueError(f"is not a Lensbox artifact: it holds no {METADATA_FILE}")
    if len(metadata) > MAX_METADATA_SIZE:
        raise ValueError(
            f"is damaged: its {METADATA_FILE} has {len(metadata)} bytes, at most {MAX_METADATA_SIZE} are read"
        )
    return metadata


def check_entries(entries: Mapping[str, bytes], known: re.Pattern[str], writer: str) -> None:
    """Raises ValueError, to be read after the file's name, for an entry with a name that is not `known`.

    writer: who writes none of that kind.
    """
    foreign = [name for name in entries if not known.fullmatch(name)]
    if foreign:
        raise ValueError(f"is not as {writer} writes it: it holds the entry {foreign[0]}")


def parse_artifact_file(entries: dict[str, bytes]) -> ArtifactFile:
    """Checks the entries of an artifact's file, all but the meaning of its metadata and its code.

    Raises ValueError, to be read after the file's name, unless it is a TorchScript archive with metadata,
    with the entries that torch writes, and its pickles describe tensors that lie inside it.
    """
    if "data.pkl" not in entries:
        raise ValueError("is not a TorchScript file")
    if "constants.pkl" not in entries:
        raise ValueError("is not a TorchScript file: it holds no code (was it written by torch.save?)")
    if "version" not in entries:
        raise ValueError("is not a TorchScript file: it holds no version")
    metadata = checked_metadata(entries)
    check_entries(entries, _ENTRY, "torch")
    for what, pattern, most in (("code", _CODE, MAX_CODE_SIZE), ("pickles", _PICKLE, MAX_PICKLES_SIZE)):
        size = sum(len(content) for name, content in entries.items() if pattern.fullmatch(name))
        if size > most:
            raise ValueError(f"has {size} bytes of {what}, at most {most} are read")
    for name, content in entries.items():
        if _PICKLE.fullmatch(name):
            try:
                check_pickle(content, "constants" if name == "constants.pkl" else "data", entries)
            except DamagedPickleError as error:
                raise ValueError(f"is damaged: its entry {name}: {error}") from error
    code = {name: content for name, content in entries.items() if _CODE.fullmatch(name)}
    libraries = {
        name.removeprefix(LIBRARIES): content
        for name, content in entries.items()
        if name.startswith(LIBRARIES)
    }
    return ArtifactFile(metadata, code, libraries)
