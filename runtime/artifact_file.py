"""The entries of a TorchScript artifact."""

from collections.abc import Mapping
from dataclasses import dataclass

from lensbox.artifact.metadata import METADATA_FILE

METADATA_ENTRY = f"extra/{METADATA_FILE}"
LIBRARIES = "extra/ops/"


@dataclass(frozen=True)
class ArtifactFile:
    """metadata: the bytes of `lensbox.json`; libraries: each file of `extra/ops/`, by its name there."""

    metadata: bytes
    libraries: dict[str, bytes]


def checked_metadata(entries: Mapping[str, bytes]) -> bytes:
    """Return the bytes of `lensbox.json`. Raises ValueError, to be read after the file's name."""
    metadata = entries.get(METADATA_ENTRY)
    if metadata is None:
        raise ValueError(f"is not a Lensbox artifact: it holds no {METADATA_FILE}")
    return metadata


def parse_artifact_file(entries: dict[str, bytes]) -> ArtifactFile:
    """Return what a TorchScript artifact holds beside its code.

    Raises ValueError, to be read after the file's name, unless the file is a TorchScript archive with
    metadata.
    """
    if "data.pkl" not in entries:
        raise ValueError("is not a TorchScript file")
    if "constants.pkl" not in entries:
        raise ValueError("is not a TorchScript file: it holds no code (was it written by torch.save?)")
    libraries = {
        name.removeprefix(LIBRARIES): content
        for name, content in entries.items()
        if name.startswith(LIBRARIES)
    }
    return ArtifactFile(checked_metadata(entries), libraries)
