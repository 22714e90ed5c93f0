"""A long export shows its current step and the loop that runs."""

import logging
import threading
from collections.abc import Iterator

import pytest

from lensbox.export import progress
from lensbox.export.progress import Progress, counted, shown_progress

EXPORT = logging.getLogger("lensbox.export")


@pytest.fixture
def steps(caplog: pytest.LogCaptureFixture) -> Iterator[Progress]:
    """Return the progress of the messages of an export."""
    steps = Progress()
    EXPORT.addHandler(steps)
    with caplog.at_level(logging.INFO, "lensbox"):
        yield steps
    EXPORT.removeHandler(steps)


def test_repeats_the_last_step_with_what_is_left(steps: Progress, caplog: pytest.LogCaptureFixture) -> None:
    EXPORT.getChild("pipeline").info("making the file for %s", "onnx")
    EXPORT.getChild("pipeline").warning("a warning is no step")
    for _ in counted("abc", "canvases"):
        steps.report()
    steps.report()
    assert [message for message in caplog.messages if message.startswith("still")] == [
        *(f"still making the file for onnx (0 s, {index} of 3 canvases done)" for index in range(3)),
        "still making the file for onnx (0 s)",
    ]


def test_a_thread_reports_until_the_export_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_SECONDS", 0.0)
    entered = threading.Event()
    monkeypatch.setattr(Progress, "report", lambda self: entered.set())
    handlers = list(EXPORT.handlers)
    with shown_progress():
        assert entered.wait(60)
        assert len(EXPORT.handlers) == len(handlers) + 1
    assert EXPORT.handlers == handlers
