"""`detect` of a few canvases on a GPU, call by call and as a captured CUDA graph."""

from functools import partial

import torch
from torch import Tensor

from lensbox.artifact.self_test import TOLERANCES, max_error
from lensbox.bench.check import WrongAnswerError
from lensbox.bench.comparison import complete_series
from lensbox.bench.measurement import Effort
from lensbox.bench.photo.case import Case, Way
from lensbox.bench.photo.check import expected_canvas
from lensbox.bench.photo.photographs import small_photographs
from lensbox.bench.photo.subject import Subject
from lensbox.bench.timing import Series
from lensbox.runtime.artifact import Artifact

DETECT = "detect"
PLAIN, CAPTURED = "lensbox, plain calls", "lensbox, captured"
_SIDE = 512


def graph_case(subject: Subject, batch_size: int) -> Case:
    """Both must find the same."""
    photographs = small_photographs(_SIDE, batch_size)
    canvases = torch.cat([expected_canvas(photograph.file, subject) for photograph in photographs])
    canvases = canvases.to(subject.device)

    def prepare(capture: bool, effort: Effort) -> Series:
        artifact = subject.artifact
        if capture:
            artifact = subject.another_artifact()
            artifact.capture([batch_size])
            _require_same(artifact, subject.artifact, canvases)
        return complete_series(partial(artifact.detect, canvases), effort)

    return Case(
        f"{batch_size} canvases" if batch_size > 1 else "1 canvas",
        [Way(DETECT, name, partial(prepare, name == CAPTURED)) for name in (PLAIN, CAPTURED)],
    )


def _require_same(artifact: Artifact, plain: Artifact, canvases: Tensor) -> None:
    """Raises WrongAnswerError."""
    (boxes, scores, counts), expected = artifact.detect(canvases), plain.detect(canvases)
    if not torch.equal(counts, expected[2]):
        raise WrongAnswerError(f"{counts.tolist()} faces are found, {expected[2].tolist()} by plain calls")
    errors = (max_error(boxes, expected[0]), max_error(scores, expected[1]))
    tolerance = TOLERANCES[canvases.device.type]
    if not (errors[0] <= tolerance.boxes and errors[1] <= tolerance.scores):
        raise WrongAnswerError(f"boxes differ by {errors[0]:.3g} px and scores by {errors[1]:.3g}")
