"""What lies in an artifact's exported program, looked at before torch sees it: a graph and `lensbox.json`.

It is a zip archive as `torch.export.save` writes it.
"""

from collections.abc import Mapping

from lensbox.runtime.artifact_file import checked_metadata

_GRAPH = "models/model.json"


def is_program(entries: Mapping[str, bytes]) -> bool:
    """Whether an archive with these entries holds the graph of an exported program."""
    return _GRAPH in entries


def parse_program(entries: Mapping[str, bytes]) -> bytes:
    """The metadata of an exported program with these entries, by their names without the folder that all lie
    in.

    Raises ValueError, to be read after the file's name, if it holds no metadata.
    """
    return checked_metadata(entries)
