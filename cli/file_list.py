"""List the image files of a command line, as the runner's `image_list.cpp` does."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from lensbox.common.errors import InputError, system_reason

ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif")


class ListedFile(NamedTuple):
    """An image file, or a folder without one.

    drawing: path of the annotated picture, relative to `--annotate`. fault: the error if it is a folder.
    """

    path: Path
    drawing: Path
    fault: InputError | None = None


def list_files(arguments: Sequence[Path], recursive: bool, drawings: Path | None) -> list[ListedFile]:
    """Return the named files, and the image files of named folders sorted by name.

    Image files end in one of ENDINGS (case-insensitive) and do not begin with a dot. recursive: also list
    folders in a folder, except links, names that begin with a dot, and the folder of the drawings.
    """
    files: list[ListedFile] = []
    for argument in arguments:
        if is_folder(argument):
            files += _of_folder(argument, recursive, drawings)
        else:
            files.append(ListedFile(argument, Path(f"{argument.stem}.png")))
    return files


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder; False if it cannot be accessed."""
    try:
        return path.is_dir()
    except OSError:  # no permission: reading it as a file reports that
        return False


def _of_folder(folder: Path, recursive: bool, drawings: Path | None) -> list[ListedFile]:
    try:
        paths = sorted(_images_in(folder, recursive, drawings))
    except OSError as error:
        return [ListedFile(folder, Path(), InputError(f"the folder cannot be read: {system_reason(error)}"))]
    if not paths:
        hint = "" if recursive else " (--recursive also looks into the folders in it)"
        fault = InputError(f"no file in this folder ends with {', '.join(ENDINGS)}{hint}")
        return [ListedFile(folder, Path(), fault)]
    # The whole name: a.jpg and a.png are two drawings.
    return [ListedFile(path, Path(f"{path.relative_to(folder)}.png")) for path in paths]


def _images_in(folder: Path, recursive: bool, drawings: Path | None) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.name.startswith("."):
            continue
        if path.is_dir():
            is_the_drawings = drawings is not None and drawings.exists() and path.samefile(drawings)
            if recursive and not path.is_symlink() and not is_the_drawings:
                yield from _images_in(path, recursive, drawings)
        elif path.suffix.lower() in ENDINGS:
            yield path
