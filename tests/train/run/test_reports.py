"""Log lines, progress bar and `log.jsonl`."""

import io
import json
import logging
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from lensbox.train.run.reports import ScalarLog, open_progress_bar


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


def lines(folder: Path) -> list[Any]:
    return (folder / "log.jsonl").read_text().splitlines()


def steps(folder: Path) -> list[int]:
    return [json.loads(line)["step"] for line in lines(folder)]


def test_resuming_drops_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    log = ScalarLog(tmp_path)
    for step in (5, 10, 15):
        log.write(step, {"loss": 1.0})
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"step": 2')  # cut short
    ScalarLog(tmp_path, step=10).write(12, {"loss": 0.5})
    assert steps(tmp_path) == [5, 10, 12]
    ScalarLog(tmp_path)
    assert lines(tmp_path) == []


def test_nan_is_null(tmp_path: Path) -> None:
    ScalarLog(tmp_path).write(1, {"AP tiny4-8": float("nan"), "loss": 2.0})
    assert json.loads(lines(tmp_path)[0], parse_constant=lambda name: name)["AP tiny4-8"] is None
