"""Find the files that labels name, and the files in a folder."""

import os
import re
import unicodedata
from collections.abc import Sequence
from functools import partial
from pathlib import Path, PureWindowsPath


def find_file(folders: Sequence[Path], name: str) -> tuple[str, Path] | None:
    """Return the file that a label file names: its name, and its path in the first folder that has it.

    `\\` of Windows means `/`. An absolute path or URL may be of another machine: its ends are looked for,
    too, the longest first. Letters with accents may be one character or two: file systems differ. Return
    None if there is no such file.
    """
    path = PureWindowsPath(re.sub("^[a-z]{2,}:/+", "/", name))
    parts = path.parts[1:] if path.anchor else path.parts
    ends = ["/".join(parts[start:]) for start in range(len(parts) if path.anchor else 1)]
    forms = (str, partial(unicodedata.normalize, "NFC"), partial(unicodedata.normalize, "NFD"))
    spellings = dict.fromkeys(form(text) for text in (name, *ends) for form in forms)
    places = ((text, folder / text) for text in spellings for folder in folders)
    return next((place for place in places if is_file(place[1])), None)


def is_file(path: Path) -> bool:
    """Return whether a path is a file. A name that no file can have is none."""
    return os.path.isfile(path)  # noqa: PTH113 (pathlib raises OSError for a name that is too long)


def files_below(folder: Path) -> list[Path]:
    """Return the files in a folder at any depth, sorted. Follow links to folders; read each folder once."""
    found: list[Path] = []
    seen: set[str] = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        if (real := os.path.realpath(place)) in seen:
            folders.clear()
            continue
        seen.add(real)
        folders.sort(key=lambda name: (Path(place, name).is_symlink(), name))
        found += [Path(place, name) for name in names]
    return sorted(found)
