import io
import logging
import re
import sys

import pytest

from lensbox.train.run.reports import open_progress_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_shows_share_and_text_with_log_lines_above(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    logger, handler = logging.getLogger("lensbox"), logging.StreamHandler(stream)
    logger.addHandler(handler)
    try:
        with open_progress_bar() as bar:
            assert bar is not None
            bar.begin(0.25)
            bar.show("step 7, 90 img/s, loss 1.5000")
            logger.error("a line")
            bar.advance(0.5)
        assert handler in logger.handlers
    finally:
        logger.removeHandler(handler)
    drawn = stream.getvalue()
    assert "25.0%|" in drawn
    assert " 50.0%|" in drawn
    assert "step 7, 90 img/s, loss 1.5000" in drawn
    assert re.search(r"[\r\n]a line\n", drawn)  # a line of its own, and the bar again below it
    assert drawn.index(" 50.0%|") > drawn.index("a line")


def test_needs_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with open_progress_bar() as bar:
        assert bar is None
    monkeypatch.setattr(sys, "stderr", Terminal())
    with open_progress_bar() as bar:
        assert bar is not None
    with open_progress_bar(wanted=False) as bar:
        assert bar is None
