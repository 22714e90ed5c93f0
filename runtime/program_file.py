"""What lies in an artifact's exported program, looked at before torch sees it: a graph and `lensbox.json`.

It is a zip archive as `torch.export.save` writes it, read as strictly as a TorchScript artifact.
"""

import re
from collections.abc import Mapping

from lensbox.runtime.artifact_file import METADATA_ENTRY, check_entries, checked_metadata

_GRAPH = "models/model.json"
_ENTRY = re.compile(
    rf"{_GRAPH}|data/(weights|constants|sample_inputs)/\w[\w.-]*|archive_format|archive_version|version"
    rf"|byteorder|\.data/(version|serialization_id)|{METADATA_ENTRY}",
    re.ASCII,
)


def is_program(entries: Mapping[str, bytes]) -> bool:
    """Whether an archive with these entries holds the graph of an exported program."""
    return _GRAPH in entries


def parse_program(entries: Mapping[str, bytes]) -> bytes:
    """The metadata of an exported program with these entries, by their names without the folder that all lie
    in.

    Raises ValueError, to be read after the file's name, if it holds anything that Lensbox does not put there.
    """
    metadata = checked_metadata(entries)
    check_entries(entries, _ENTRY, "Lensbox")
    return metadata
