"""Free sample photographs from installed packages: two portraits, and seven photographs without a face.

`python -m lensbox.cli.samples FOLDER` writes the photographs, and their boxes as two tables: `train.csv`
(Grace Hopper and six photographs without a face) and `val.csv` (the astronaut and one without). A table has
one row per face: the file, then x1, y1, x2, y2 in pixels.

Grace Hopper's portrait (US Navy, public domain) comes with matplotlib, all other photographs with
scikit-image. The astronaut Eileen Collins and the Hubble deep field (NASA) and the rocket (SpaceX) are in the
public domain, all others are CC0.
"""

import argparse
import csv
import shutil
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from lensbox.common.errors import ExitCode, system_reason

# The face in each portrait, xyxy in pixels: forehead to chin, without hair, hat and ears; drawn by hand.
DRAWN_BOXES = {"grace_hopper.jpg": [180, 133, 355, 330], "astronaut.png": [181, 75, 272, 178]}
# `camera.png` and `coins.png` of scikit-image show faces.
FACE_FREE = (
    *("brick.png", "cat.png", "coffee.png", "grass.png", "gravel.png"),
    *("hubble_deep_field.jpg", "rocket.jpg"),
)
# Where a photograph lies, if not under its name in scikit-image's data.
_PLACES = {
    "grace_hopper.jpg": ("matplotlib", "mpl-data/sample_data/grace_hopper.jpg"),
    "cat.png": ("skimage", "data/chelsea.png"),
}
_TO_SCORE_ON = ("astronaut.png", "cat.png")  # the photographs of val.csv


def save_photos(folder: Path, names: Iterable[str] = DRAWN_BOXES) -> list[Path]:
    """Copy photographs, by default the two portraits, into a folder; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    return [Path(shutil.copyfile(_original(name), folder / name)) for name in names]


def _original(name: str) -> Path:
    """Find a photograph in its package without importing that, which would take seconds."""
    package, place = _PLACES.get(name, ("skimage", f"data/{name}"))
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    return Path(spec.submodule_search_locations[0]) / place


def main() -> None:
    """Write the photographs and tables, and print the paths of the two tables."""
    parser = argparse.ArgumentParser(prog="python -m lensbox.cli.samples", description=__doc__)
    parser.add_argument("folder", type=Path, help="the output folder; created if missing")
    folder: Path = parser.parse_args().folder
    names = [*DRAWN_BOXES, *FACE_FREE]
    try:
        save_photos(folder, names)
        for table, chosen in (
            ("train.csv", [name for name in names if name not in _TO_SCORE_ON]),
            ("val.csv", _TO_SCORE_ON),
        ):
            with (folder / table).open("w", newline="", encoding="utf-8") as file:
                rows = csv.writer(file, lineterminator="\n")
                rows.writerow(["file", "x1", "y1", "x2", "y2"])
                rows.writerows([name, *DRAWN_BOXES.get(name, [""] * 4)] for name in chosen)
            print(folder / table)
    except (ModuleNotFoundError, OSError) as error:
        message = f"the photographs come with matplotlib and skimage: {error}: pip install 'lensbox[demo]'"
        if isinstance(error, OSError):
            message = f"{error.filename or folder} cannot be written: {system_reason(error)}"
        parser.exit(ExitCode.UNUSABLE, f"{parser.prog}: {message}\n")


if __name__ == "__main__":
    main()
