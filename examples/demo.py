"""One artifact behind three doors: `make demo`, or python demo.py.

Find the faces in two photographs with the C++ runner, start the service for a moment and ask it for the same
photographs, and for a loss with its gradient, run the artifact from Python, and check that all found the same
boxes. Draw the photographs with their boxes into one picture.
"""

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import PIL.Image
import PIL.ImageOps

from lensbox.cli.command import FILE
from lensbox.cli.output import DetectionTable, annotate
from lensbox.cli.samples import DRAWN_BOXES, save_photos
from lensbox.client import Client

REPOSITORY = Path(__file__).resolve().parents[1]
GAP = 12  # between the pictures, pixels
# Decoders and networks are the same; sums of floats may differ in their last digits.
PIXELS, SCORES = 0.01, 1e-4

Found = list[dict[str, Any]]  # detections of a photograph, with "box", "score" and "label"


class DemoError(click.ClickException):
    """The demo cannot go on; the message says why. Exit code 1."""


@click.command(context_settings={"show_default": True}, help=__doc__)
@click.option(
    "--runner",
    type=FILE,
    envvar="LENSBOX_RUNNER",
    default=REPOSITORY / "build" / "runner" / "lensbox_runner",
    help="The program.",
)
@click.option("--artifact", type=FILE, default=Path("artifacts/detector.pt"), help="The detector.")
@click.option("--output", type=FILE, default=Path("artifacts"), help="Folder for photos/ and demo.png.")
def main(runner: Path, artifact: Path, output: Path) -> None:
    """Print boxes, scores and losses, and write the picture.

    Raise DemoError if a program fails, misses a face, or finds other boxes than the C++ runner.
    """
    if not runner.is_file():
        raise DemoError(f"{runner} is not there: build it with `make runner`")
    photos = save_photos(output / "photos")
    drawn = [DRAWN_BOXES[path.name] for path in photos]
    with _service(artifact) as service:  # starts while the runner and Python work
        from lensbox.ops import library_path  # late, because this loads torch
        from lensbox.runtime import load_artifact

        files = ("--artifact", artifact, "--ops", library_path())
        images = [word for path in photos for word in ("--image", path)]
        answers, table = _run(runner, "detect", *files, *images)["images"], DetectionTable(photos, ())
        for path, answer in zip(photos, answers, strict=True):
            print(table(path, answer), end="")
            if not answer["detections"]:
                raise DemoError(f"no face was found in {path.name}")
        in_cpp = [answer["detections"] for answer in answers]
        best = [found[0]["box"] for found in in_cpp]
        targets = output / "photos" / "drawn_boxes.json"
        targets.write_text(json.dumps(drawn), encoding="utf-8")
        words = ("--predictions", "-", "--targets", targets)
        loss = _run(runner, "loss", *files, *words, stdin=json.dumps(best))["loss"]
        print(f"\nC++:    the boxes above; GIoU loss of the best against boxes drawn by hand {loss:.4f}")

        loaded = load_artifact(artifact, "cpu")
        in_python = [loaded.detect_image(path).to_json(loaded.classes)["detections"] for path in photos]
        with Client(_address(service)) as client:
            over_http = [client.detect(path).to_json()["detections"] for path in photos]
            asked = client.loss(best, drawn, gradient=True)
        service.terminate()  # drains during what follows
        worst = require_same("the service", over_http, in_cpp)
        if abs(asked.loss - loss) > SCORES or asked.gradient is None:
            raise DemoError(f"the service's loss must be {loss:.4f}, got {asked.loss:.4f}")
        step = ", ".join(f"{value:+.4f}" for value in asked.gradient[0])
        print(f"HTTP:   the same {worst}; loss {asked.loss:.4f}, its gradient for the first box ({step})")
        print(f"Python: the same {require_same('Python', in_python, in_cpp)}")
        pictures = [annotate(PIL.Image.open(path), found) for path, found in zip(photos, in_cpp, strict=True)]
        side_by_side(*pictures).save(output / "demo.png")
    print(f"\nBoth photographs with their boxes: {output / 'demo.png'}")


def side_by_side(left: PIL.Image.Image, right: PIL.Image.Image) -> PIL.Image.Image:
    """Return two RGB pictures beside each other, scaled to the height of the lower one."""
    height = min(left.height, right.height)
    first, second = (PIL.ImageOps.scale(each, height / each.height) for each in (left, right))
    gap = np.full((height, GAP, 3), 255, np.uint8)
    return PIL.Image.fromarray(np.hstack([np.asarray(first), gap, np.asarray(second)]))


def _run(runner: Path, name: str, *arguments: str | Path, stdin: str = "") -> Any:
    """Run a command of the runner and return the JSON it printed."""
    command = [runner, name, *arguments]
    process = subprocess.run(command, input=stdin, stdout=subprocess.PIPE, text=True, check=False)
    if process.returncode != 0:
        raise DemoError(f"lensbox_runner {name} failed with exit code {process.returncode}")
    return json.loads(process.stdout)


@contextlib.contextmanager
def _service(artifact: Path) -> Iterator[subprocess.Popen[str]]:
    """Run `lensbox serve` on a free port of this machine, and end it."""
    command = [sys.executable, "-m", "lensbox.cli", "serve", "--artifact", str(artifact)]
    command += ["--host", "127.0.0.1", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.communicate()


def _address(service: subprocess.Popen[str]) -> str:
    """Return the address of the service once it is ready."""
    assert service.stderr is not None
    log = ""
    for line in service.stderr:
        log += line
        if ready := re.search(r"ready: .* on (http://[\w.:]+)", line):
            return ready[1]
    raise DemoError(f"the service did not start:\n{log}")


def require_same(door: str, found: list[Found], expected: list[Found]) -> str:
    """Compare detections in order; return the largest differences in words. Raise DemoError for others."""
    rows, wanted = (
        np.array([[*one["box"], one["score"]] for image in images for one in image])
        for images in (found, expected)
    )
    if rows.shape != wanted.shape:
        raise DemoError(f"{door} must find as many faces as C++, got {len(rows)} and {len(wanted)}")
    *sides, scores = np.abs(rows - wanted).max(axis=0)
    pixels = max(sides)
    if pixels > PIXELS or scores > SCORES:
        raise DemoError(
            f"{door} must find the boxes of C++, got boxes {pixels:.3g} px and scores {scores:.3g} off"
        )
    return f"boxes within {pixels:.1g} px, scores within {scores:.1g}"


if __name__ == "__main__":
    main()
