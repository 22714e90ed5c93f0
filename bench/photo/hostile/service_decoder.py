"""Decodes a file as the service does, with its default limits. Needs `pip install 'lensbox[serve]'`."""

import time

from lensbox.artifact.metadata import Canvas, Reading
from lensbox.serve.engine.errors import DeadlineError
from lensbox.serve.errors import ApiError
from lensbox.serve.image_body import photo_from_file
from lensbox.serve.settings import Settings


def decode(canvas: Canvas | None, reading: Reading, file: bytes) -> tuple[float, str]:
    """CPU seconds, and what came of it. canvas, reading: of the artifact that is served."""
    deadline = time.monotonic() + Settings.answer_timeout
    started = time.process_time()
    try:
        photo_from_file(file, canvas, reading, Settings.max_pixels, deadline)
        outcome = "decoded"
    except ApiError as error:
        outcome = f"refused: {error.status} {error.code}"
    except DeadlineError:
        outcome = "given up at the deadline"
    return time.process_time() - started, outcome
