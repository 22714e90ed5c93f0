"""`python -m lensbox.common.samples FOLDER`: photographs to try things with, and their boxes as tables.

Writes the nine photographs of `photos.py`, `train.csv` (Grace Hopper, and six pictures without a face) and
`val.csv` (the astronaut, and one without), a row a face: the file, then the box, x1, y1, x2, y2 in pixels.
"""

import argparse
import csv
import io
from importlib.util import find_spec
from pathlib import Path

import PIL.Image

from lensbox.common.atomic_write import atomic_write
from lensbox.common.errors import ExitCode, system_reason
from lensbox.common.sample_photos import DRAWN_BOXES, face_free_photos, save_photos

_TO_SCORE_ON = ("astronaut.png", "cat.png")


def main() -> None:
    """Writes them, and prints the paths of the two tables."""
    parser = argparse.ArgumentParser(prog="python -m lensbox.common.samples", description=__doc__)
    parser.add_argument("folder", type=Path, help="where to write them; made if it is not there")
    folder: Path = parser.parse_args().folder
    if missing := [name for name in ("matplotlib", "skimage") if find_spec(name) is None]:
        message = f"the photographs come with {' and '.join(missing)}: pip install 'lensbox[demo]'"
        parser.exit(ExitCode.UNUSABLE, f"{parser.prog}: {message}\n")
    if folder.exists() and not folder.is_dir():
        parser.error(f"folder must be a folder, got the file {folder}")
    try:
        _write(folder)
    except OSError as error:
        message = f"{error.filename or folder} cannot be written: {system_reason(error)}"
        parser.exit(ExitCode.UNUSABLE, f"{parser.prog}: {message}\n")


def _write(folder: Path) -> None:
    names = [path.name for path in save_photos(folder)]
    for name, pixels in face_free_photos().items():
        names.append(f"{name}.png")
        PIL.Image.fromarray(pixels).save(folder / names[-1])
    for table, chosen in (
        ("train.csv", [name for name in names if name not in _TO_SCORE_ON]),
        ("val.csv", _TO_SCORE_ON),
    ):
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(["file", "x1", "y1", "x2", "y2"])
        rows.writerows([name, *DRAWN_BOXES.get(name, [""] * 4)] for name in chosen)
        atomic_write(folder / table, text.getvalue().encode())
        print(folder / table)


if __name__ == "__main__":
    main()
