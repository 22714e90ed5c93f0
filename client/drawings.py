"""The pictures that `lensbox detect --annotate` writes."""

import io
from collections.abc import Sequence
from pathlib import Path

import click
import PIL.Image
import PIL.ImageOps

from lensbox.client.answers import ImageDetections
from lensbox.client.detector import Detector
from lensbox.client.file_list import ListedFile
from lensbox.common.annotate import annotate
from lensbox.common.errors import InputError
from lensbox.common.files import atomic_write


def check_drawings(folder: Path, files: Sequence[ListedFile]) -> None:
    """Raises UsageError for a drawing that would be written twice, or over one of the files."""
    if folder.exists() and not folder.is_dir():
        raise click.UsageError(f"--annotate must be a folder, got {folder}")
    taken = {file.path.resolve() for file in files}
    for file in files:
        path = folder / file.drawing
        if file.fault is None and path.resolve() in taken:
            raise click.UsageError(
                f"--annotate would write {path} twice, or over an image: give another folder, or the files "
                "one by one"
            )
        taken.add(path.resolve())


def draw(path: Path, found: ImageDetections, detector: Detector, output: Path) -> None:
    """Writes the photograph with what was found in it, at full size and in color. Raises InputError, OSError.

    The file is read again: the detector needs less of it.
    """
    try:
        with PIL.Image.open(path) as stored:
            stored.load()
            upright = PIL.ImageOps.exif_transpose(stored) if detector.orientation == "exif" else stored
            drawn = annotate(upright, found.to_json()["detections"], detector.classes, detector.points)
    except Exception as error:  # decoders raise a dozen types on broken files
        raise InputError(f"it cannot be drawn on: {error or type(error).__name__}") from error
    buffer = io.BytesIO()
    drawn.save(buffer, "PNG", compress_level=1)
    atomic_write(output, buffer.getvalue())
