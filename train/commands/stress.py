"""`lensbox stress`: degrades two portraits until a detector misses them."""

from __future__ import annotations

from lensbox.common.errors import ArtifactError
from lensbox.common.files import require_writable_file
from lensbox.common.samples import face_free_photos
from lensbox.train.commands.arguments import StressArguments
from lensbox.train.commands.choices import chosen_detector, chosen_device
from lensbox.train.evaluation.contact_sheet import save_picture
from lensbox.train.evaluation.evaluation_set import FACE_CANVAS
from lensbox.train.stress.degradations import FACTORS
from lensbox.train.stress.stress_sheet import stress_sheet
from lensbox.train.stress.stress_test import (
    false_alarm_line,
    sample_portraits,
    search_face_free,
    stress_test,
    table,
)


def run_stress(arguments: StressArguments) -> None:
    """Runs `lensbox stress`. Raises one of `lensbox.common.errors`, with its exit code, or OSError."""
    device = chosen_device(arguments.detector.device)
    require_writable_file("--output", arguments.output)
    chosen = chosen_detector(arguments.detector, device)
    if chosen.canvas != FACE_CANVAS or chosen.classes:
        raise ArtifactError(
            f"--artifact must be a detector of faces, with a gray canvas of {FACE_CANVAS.width}x"
            f"{FACE_CANVAS.height} pixels and no classes, got {arguments.detector.artifact} with "
            f"{chosen.canvas} and {len(chosen.classes)} classes"
        )
    detect = chosen.detect
    threshold = chosen.threshold if arguments.threshold is None else arguments.threshold
    results = stress_test(detect, sample_portraits(), FACTORS, device)
    face_free = search_face_free(detect, face_free_photos(), device)
    print(table(results, threshold))
    print(f"\n{false_alarm_line(face_free, threshold)}")
    save_picture(stress_sheet(results, face_free, threshold), arguments.output)
    print(f"\nwrote {arguments.output}")
