"""One artifact behind three doors: `make demo`, or `python -m lensbox.cli.demo`.

Find the faces in two photographs with the C++ runner, start the service for a moment and ask it for the same
photographs, and for a loss with its gradient, run the artifact from Python, and check that all found the same
boxes. Draw the photographs with their boxes into one picture.
"""

import argparse
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import PIL.Image

from lensbox.cli.annotate import annotate
from lensbox.cli.samples import DRAWN_BOXES, save_photos
from lensbox.cli.source import DetectionSource, artifact_source, service_source
from lensbox.client import Client
from lensbox.common.errors import LensboxError
from lensbox.common.files import atomic_write

REPOSITORY = Path(__file__).resolve().parents[1]  # the package may be linked to from elsewhere
GAP = 12  # between the pictures, pixels
# Decoders and networks are the same; sums of floats may differ in their last digits.
PIXELS, SCORES = 0.01, 1e-4

Box = list[float]
Found = list[dict[str, Any]]  # detections of a photograph, with "box", "score" and "label"


class DemoError(RuntimeError):
    """The demo cannot go on; the message says why."""


def main(argv: list[str]) -> int:
    """Run the demo and return the exit code: 0 = the same faces behind all three doors, 1 = not."""
    options = _parser().parse_args(argv)
    try:
        run_demo(options.runner, options.artifact, options.output)
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


def run_demo(runner: Path, artifact: Path, output: Path) -> None:
    """Write photos/ and demo.png into the folder `output`, and print boxes, scores and losses.

    Raise DemoError if a program fails, misses a face, or finds other boxes than the C++ runner.
    """
    if not runner.is_file():
        raise DemoError(f"{runner} is not there: build it with `make runner`")
    photos = save_photos(output / "photos")
    drawn: list[Box] = [list(DRAWN_BOXES[path.name]) for path in photos]
    with _service(artifact) as service:  # starts while the runner and Python work
        in_cpp = _found_in_cpp(runner, artifact, photos)
        for path, found in zip(photos, in_cpp, strict=True):
            _print_photo(path, found)
        best = [found[0]["box"] for found in in_cpp]
        loss = _loss_in_cpp(runner, artifact, best, drawn)
        print(f"\nC++:    the boxes above; GIoU loss of the best against boxes drawn by hand {loss:.4f}")

        in_python = _found(_in_python(artifact), photos)
        with Client(_address(service)) as client:
            over_http = _found(service_source(client, {}), photos)
            answer = client.loss(best, drawn, gradient=True)
        service.terminate()  # drains during what follows
        worst = require_same("the service", over_http, in_cpp)
        if abs(answer.loss - loss) > SCORES or answer.gradient is None:
            raise DemoError(f"the service's loss must be {loss:.4f}, got {answer.loss:.4f}")
        step = ", ".join(f"{value:+.4f}" for value in answer.gradient[0])
        print(f"HTTP:   the same {worst}; loss {answer.loss:.4f}, its gradient for the first box ({step})")

        print(f"Python: the same {require_same('Python', in_python, in_cpp)}")
        pictures = [annotate(PIL.Image.open(path), found) for path, found in zip(photos, in_cpp, strict=True)]
        side_by_side(pictures, output / "demo.png")
    print(f"\nBoth photographs with their boxes: {output / 'demo.png'}")


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


def _found_in_cpp(runner: Path, artifact: Path, photos: Sequence[Path]) -> list[Found]:
    images = [word for path in photos for word in ("--image", str(path))]
    return [image["detections"] for image in _run(runner, artifact, "detect", *images)["images"]]


def _loss_in_cpp(runner: Path, artifact: Path, predictions: list[Box], targets: list[Box]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "targets.json"
        file.write_text(json.dumps(targets), encoding="utf-8")
        arguments = ("--predictions", "-", "--targets", str(file))
        return float(_run(runner, artifact, "loss", *arguments, stdin=json.dumps(predictions))["loss"])


def _run(runner: Path, artifact: Path, name: str, *arguments: str, stdin: str = "") -> Any:
    """Run a command of the runner and return the JSON it printed."""
    from lensbox.ops import library_path  # late, because it loads torch

    command = [str(runner), name, "--artifact", str(artifact), "--ops", str(library_path()), *arguments]
    process = subprocess.run(command, input=stdin, stdout=subprocess.PIPE, text=True, check=False)
    if process.returncode != 0:
        raise DemoError(f"lensbox_runner {name} failed with exit code {process.returncode}")
    return json.loads(process.stdout)


def _in_python(artifact: Path) -> DetectionSource:
    return artifact_source(
        artifact, {}, device="cpu", batch=1, decode="auto", decode_threads=1, public_key=None, ops=()
    )


def _found(source: DetectionSource, photos: Sequence[Path]) -> list[Found]:
    """Return the detections of all photographs. Raise DemoError for a photograph that fails."""
    found = []
    for answer in source.detect(photos):
        if isinstance(answer, LensboxError):
            raise DemoError(f"a photograph was not answered: {answer}")
        found.append(answer["detections"])
    return found


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
    log, url = "", ""
    for line in service.stderr:
        log += line
        if listening := re.search(r"listening on (http://[\w.:]+)", line):
            url = listening[1]
        if url and "ready: " in line:
            return url
    raise DemoError(f"the service did not start:\n{log}")


def require_same(door: str, found: list[Found], expected: list[Found]) -> str:
    """Compare detections in order; return the largest differences in words. Raise DemoError for others."""
    counts = [len(image) for image in found]
    if counts != [len(image) for image in expected]:
        raise DemoError(f"{door} must find as many faces as C++, got {counts}")
    pairs = [
        pair for one, other in zip(found, expected, strict=True) for pair in zip(one, other, strict=True)
    ]
    pixels = max(
        abs(value - wanted)
        for one, other in pairs
        for value, wanted in zip(one["box"], other["box"], strict=True)
    )
    scores = max(abs(one["score"] - other["score"]) for one, other in pairs)
    if pixels > PIXELS or scores > SCORES:
        raise DemoError(
            f"{door} must find the boxes of C++, got boxes {pixels:.3g} px and scores {scores:.3g} off"
        )
    return f"boxes within {pixels:.1g} px, scores within {scores:.1g}"


def _print_photo(path: Path, found: Found) -> None:
    with PIL.Image.open(path) as picture:
        print(f"\n{path.name}, {picture.width} x {picture.height} pixels")
    for number, detection in enumerate(found, start=1):
        x1, y1, x2, y2 = detection["box"]
        print(
            f"  {detection.get('label', 'face')} {number}: score {detection['score']:.3f}, "
            f"x {x1:.1f} to {x2:.1f}, y {y1:.1f} to {y2:.1f}"
        )
    if not found:
        raise DemoError(f"no face was found in {path.name}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lensbox.cli.demo", description=__doc__)
    parser.add_argument(
        "--runner",
        type=Path,
        default=Path(os.environ.get("LENSBOX_RUNNER", REPOSITORY / "build" / "runner" / "lensbox_runner")),
        help="the program (default: %(default)s)",
    )
    parser.add_argument("--artifact", type=Path, default=Path("artifacts") / "detector.pt")
    parser.add_argument("--output", type=Path, default=Path("artifacts"), help="default: %(default)s")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
