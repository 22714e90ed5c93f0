"""Train the shipped face detector further on your photographs: python train.py boxes.csv --val val.csv

Each table has a row a face: the file, relative to the table, and the corners of the box in its pixels.
A photograph without a face has one row without numbers:

    file,x1,y1,x2,y2
    party/0001.jpg,104,58,144,110
    party/0001.jpg,301,66,313,81
    street/0042.png,,,,

The program scores the weights before and after, and prints the commands that it runs.
"""

import csv
import shlex
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections import defaultdict
from pathlib import Path

from lensbox.cli.main import main as lensbox
from lensbox.common.pictures import IMAGE_SUFFIXES
from lensbox.model.weights_file import SHIPPED_WEIGHTS

COLUMNS = ["file", "x1", "y1", "x2", "y2"]
SETTINGS = Path(__file__).with_name("train.yaml")


def main() -> int:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, help="boxes of the photographs to learn from")
    parser.add_argument("--val", type=Path, required=True, help="boxes of other photographs, to score on")
    parser.add_argument("--output", type=Path, default=Path("runs/mine"))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    try:
        learn = write_layout(options.table, options.output / "photos" / "train")
        score = write_layout(options.val, options.output / "photos" / "val")
    except (OSError, ValueError) as error:
        print(f"train.py: {error}", file=sys.stderr)
        return 4
    weights = options.output / "weights.safetensors"
    training = ["--config", short(SETTINGS), "--steps", options.steps, "--output", options.output]
    for command in (
        ["evaluate", "--data", score],
        ["train", "--data", learn, "--weights", short(SHIPPED_WEIGHTS), *training],
        ["evaluate", "--data", score, "--weights", weights],
    ):
        words = [str(word) for word in (*command, "--device", options.device)]
        print(f"+ {shlex.join(['lensbox', *words])}", flush=True)
        if code := lensbox(words):
            return code
    return 0


def short(path: Path) -> Path:
    """Return the path relative to the current folder, if it is below it."""
    path = path.resolve()
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def write_layout(table: Path, folder: Path) -> Path:
    """Write the layout that `lensbox train --data` reads (docs/training.md#your-photographs), and return it.

    The photographs stay where they are: `images` becomes a link. Raise ValueError, with file and line, for a
    bad row.
    """
    rows = read_rows(table)
    folder.mkdir(parents=True, exist_ok=True)
    images = folder / "images"
    images.unlink(missing_ok=True)
    images.symlink_to(table.parent.resolve())
    lines = []
    for file, boxes in rows.items():
        lines += [file, str(len(boxes))]
        lines += [f"{x1:g} {y1:g} {x2 - x1:g} {y2 - y1:g}" for x1, y1, x2, y2 in boxes]
    (folder / "faces_bbx_gt.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def read_rows(table: Path) -> dict[str, list[list[float]]]:
    """Return the boxes of each file."""
    found: defaultdict[str, list[list[float]]] = defaultdict(list)
    with table.open(newline="", encoding="utf-8-sig") as file:  # Excel begins a file with a byte order mark
        rows = csv.DictReader(file)
        if rows.fieldnames != COLUMNS:
            raise ValueError(f"{table}:1: the columns must be {','.join(COLUMNS)}, got {rows.fieldnames}")
        for row in rows:
            name, *texts = (row[column] or "" for column in COLUMNS)
            name = name.replace("\\", "/")  # Windows
            where = f"{table}:{rows.line_num}"
            if not (table.parent / name).is_file() or not name.lower().endswith(IMAGE_SUFFIXES):
                kinds = ", ".join(IMAGE_SUFFIXES)
                raise ValueError(f"{where}: file must be a {kinds} file below {table.parent}, got {name!r}")
            boxes = found[name]
            if not any(texts):
                continue
            try:
                x1, y1, x2, y2 = box = [float(text) for text in texts]
            except ValueError:
                raise ValueError(f"{where}: a box must be four numbers, got {','.join(texts)}") from None
            if not (x1 < x2 and y1 < y2):
                raise ValueError(f"{where}: a box must have x1 < x2 and y1 < y2, got {','.join(texts)}")
            boxes.append(box)
    return dict(found)


if __name__ == "__main__":
    sys.exit(main())
