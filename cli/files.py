"""List the image files of a command line."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click

from lensbox.common.errors import InputError, system_reason

ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif")


class ListedFile(NamedTuple):
    """An image file: its path, and its name for a drawing. fault: why there is nothing to read."""

    path: Path
    name: str
    fault: InputError | None = None


def list_files(arguments: Sequence[Path], recursive: bool) -> list[ListedFile]:
    """Return the named files, and the image files of named folders sorted by name.

    Image files end in one of ENDINGS (case-insensitive) and do not begin with a dot. recursive: also list
    folders in a folder, except links and names that begin with a dot. Raise UsageError for a URL.
    """
    files: list[ListedFile] = []
    for argument in arguments:
        if re.match(r"https?:/", str(argument)):
            raise click.UsageError(
                f"FILES must be files or folders, got the URL {argument}: download it first (curl -O); "
                "--url is the address of a service"
            )
        if os.path.isdir(argument):  # noqa: PTH112 (False without permission: reading it reports that)
            files += _of_folder(argument, recursive)
        elif os.path.lexists(argument) or not os.access(argument.parent, os.X_OK):
            files.append(ListedFile(argument, argument.name))
        else:
            fault = InputError(f"there is no file {argument.name} in {argument.parent.absolute()}")
            files.append(ListedFile(argument, argument.name, fault))
    return files


def _of_folder(folder: Path, recursive: bool) -> list[ListedFile]:
    try:
        next(folder.iterdir(), None)  # `glob` says nothing of a folder without permission
    except OSError as error:
        return [ListedFile(folder, "", InputError(f"the folder cannot be read: {system_reason(error)}"))]
    names = (path.relative_to(folder) for path in folder.glob("**/*" if recursive else "*"))
    shown = (name for name in names if not any(part.startswith(".") for part in name.parts))
    found = sorted(name for name in shown if name.suffix.lower() in ENDINGS and (folder / name).is_file())
    hint = "" if recursive else " (--recursive also looks into the folders in it)"
    fault = InputError(f"no file in this folder ends with {', '.join(ENDINGS)}{hint}")
    return [ListedFile(folder / name, str(name)) for name in found] or [ListedFile(folder, "", fault)]
