"""What lies in an AOTInductor package, checked before torch sees it: compiled code and `lensbox.json`.

It is a zip archive as torch.export's `package_pt2` writes it.
"""

from collections.abc import Mapping

from lensbox.artifact.archive import MODEL
from lensbox.runtime.artifact_file import checked_metadata

_CODE = f"data/aotinductor/{MODEL}/"
_FORMAT = "archive_format"


def is_package(entries: Mapping[str, bytes]) -> bool:
    """Whether an archive is one of torch.export, be it a package or an exported program."""
    return _FORMAT in entries


def parse_package(entries: Mapping[str, bytes]) -> bytes:
    """The metadata of a package with these entries, by their names without the folder that all lie in.

    Raises ValueError, to be read after the file's name, unless it holds compiled code of `detect`.
    """
    metadata = checked_metadata(entries)
    if not any(name.startswith(_CODE) and name.endswith(".so") for name in entries):
        raise ValueError(f"holds no compiled code: it has no entry {_CODE}*.so")
    return metadata
