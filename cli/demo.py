"""The C++ runner finds the faces in two photographs: `make demo`, or `python -m lensbox.cli.demo`.

Read the photographs from the packages that ship them, let `lensbox_runner` detect, print the detections, let
it compute the GIoU loss against a box drawn by hand, and draw both photographs with their boxes into one
picture.
"""

import argparse
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import PIL.Image

from lensbox.cli.annotate import annotate
from lensbox.cli.samples import DRAWN_BOXES, save_photos
from lensbox.common.files import atomic_write

REPOSITORY = Path(__file__).resolve().parents[1]  # the package may be linked to from elsewhere
GAP = 12  # between the pictures, pixels


class DemoError(RuntimeError):
    """The demo cannot go on; the message says why."""


def main(argv: list[str]) -> int:
    """Run the demo and return the exit code: 0 = faces found in both photographs, 1 = not."""
    options = _parser().parse_args(argv)
    try:
        run_demo(options.runner, options.artifact, options.ops, options.output)
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


def run_demo(runner: Path, artifact: Path, ops: Path | None, output: Path) -> None:
    """Write photos/ and demo.png into the folder `output`, and prints boxes, scores and losses.

    ops: the op library; None is the installed one. Raises DemoError if the runner fails or misses a face.
    """
    if not runner.is_file():
        raise DemoError(f"{runner} is not there: build it with `make runner`")
    command = [str(runner), "--artifact", str(artifact), "--ops", str(ops or _installed_op_library())]
    photos = save_photos(output / "photos")
    images = [argument for path in photos for argument in ("--image", str(path))]
    found = _run(command, "detect", *images)
    for entry in found["images"]:
        _print_photo(command, entry, output)
    demo_picture = output / "demo.png"
    pictures = [annotate(PIL.Image.open(entry["file"]), entry["detections"]) for entry in found["images"]]
    side_by_side(pictures, demo_picture)
    print(f"\nBoth photographs with their boxes: {demo_picture}")


def side_by_side(images: list[PIL.Image.Image], output: Path) -> None:
    """Put pictures beside each other, scaled to the height of the lowest, into the PNG file `output`."""
    height = min(image.height for image in images)
    images = [image.resize((round(image.width * height / image.height), height)) for image in images]
    width = sum(image.width for image in images) + GAP * (len(images) - 1)
    canvas = PIL.Image.new("RGB", (width, height), "white")
    left = 0
    for image in images:
        canvas.paste(image, (left, 0))
        left += image.width + GAP
    content = io.BytesIO()
    canvas.save(content, "PNG")
    atomic_write(output, content.getvalue())


def _print_photo(command: list[str], entry: dict[str, Any], scratch: Path) -> None:
    name = Path(entry["file"]).name
    print(f"\n{name}, {entry['width']} x {entry['height']} pixels")
    for number, detection in enumerate(entry["detections"], start=1):
        x1, y1, x2, y2 = detection["box"]
        print(
            f"  {detection.get('label', 'face')} {number}: score {detection['score']:.3f}, "
            f"x {x1:.1f} to {x2:.1f}, y {y1:.1f} to {y2:.1f}"
        )
    if not entry["detections"]:
        raise DemoError(f"no face was found in {name}")

    targets = scratch / "drawn_box.json"
    targets.write_text(json.dumps([DRAWN_BOXES[name]]))
    best = json.dumps([entry["detections"][0]["box"]])
    loss = _run(command, "loss", "--predictions", "-", "--targets", str(targets), stdin=best)["loss"]
    targets.unlink()
    print(f"  the best one against the box drawn by hand, {DRAWN_BOXES[name]}:")
    print(f"  GIoU loss {loss:.4f}, that is, a GIoU of {1 - loss:.4f}")


def _run(command: list[str], name: str, *arguments: str, stdin: str = "") -> Any:
    """Run a command of the runner and return the JSON it printed."""
    runner, *model = command
    process = subprocess.run(
        [runner, name, *model, *arguments], input=stdin, stdout=subprocess.PIPE, text=True, check=False
    )
    if process.returncode != 0:
        raise DemoError(f"lensbox_runner {name} failed with exit code {process.returncode}")
    return json.loads(process.stdout)


def _installed_op_library() -> Path:
    # Imported here, because it loads torch.
    from lensbox.ops import library_path

    return library_path()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lensbox.cli.demo", description=__doc__)
    parser.add_argument(
        "--runner",
        type=Path,
        default=Path(os.environ.get("LENSBOX_RUNNER", REPOSITORY / "build" / "runner" / "lensbox_runner")),
        help="the program (default: %(default)s)",
    )
    parser.add_argument("--artifact", type=Path, default=Path("artifacts") / "detector.pt")
    parser.add_argument("--ops", type=Path, help="the op library (default: the installed one)")
    parser.add_argument("--output", type=Path, default=Path("artifacts"), help="default: %(default)s")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
