"""Which image files a command line names: the twin of the runner's `image_list.cpp`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from lensbox.common.errors import InputError, system_reason

ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif")


class ListedFile(NamedTuple):
    """A file to look at, or what is wrong with a folder.

    drawing: the path of its drawing, below the folder of all drawings. fault: why there is nothing to see.
    """

    path: Path
    drawing: Path
    fault: InputError | None = None


def list_files(arguments: Sequence[Path], recursive: bool, drawings: Path | None) -> list[ListedFile]:
    """The files that are named, and of each folder the image files in it, in the order of their names.

    A folder's are those whose names end in one of ENDINGS, in small or capital letters, and do not begin with
    a dot. recursive: also those in the folders below, but for links, those that begin with a dot, and the one
    of the drawings.
    """
    files: list[ListedFile] = []
    for argument in arguments:
        if is_folder(argument):
            files += _of_folder(argument, recursive, drawings)
        else:
            files.append(ListedFile(argument, Path(f"{argument.stem}.png")))
    return files


def is_folder(path: Path) -> bool:
    """Whether it is known to be one. Never raises."""
    try:
        return path.is_dir()
    except OSError:  # in a folder that may not be entered: who reads it as a file says so
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
    # With the whole name, so that a.jpg and a.png are two drawings.
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
