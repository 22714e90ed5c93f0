"""Log lines, and `log.jsonl`."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lensbox.train.evaluation.figures import Figures
from lensbox.train.run.optimizer import Clock
from lensbox.train.run.reports import RunLog


def log_at(step: int, folder: Path, resumed: bool = False) -> tuple[RunLog, Any]:
    """Return a log, and the step that the log reads."""
    at: Any = SimpleNamespace(step=step)
    return RunLog(at, Clock(100), folder, resumed=resumed), at


def lines(folder: Path) -> list[str]:
    return (folder / "log.jsonl").read_text().splitlines()


def test_resuming_drops_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    log, at = log_at(0, tmp_path)
    for at.step in (5, 10, 15):
        log.evaluation(Figures({"all>=8": 0.5, "tiny4-8": float("nan")}, 1, 1, 0.4, 0.7), 0.5)
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"step": 2')  # cut short
    log_at(10, tmp_path, resumed=True)
    values = [json.loads(line, parse_constant=lambda name: name) for line in lines(tmp_path)]
    assert [value["step"] for value in values] == [5, 10]
    assert (values[0]["AP all>=8"], values[0]["AP tiny4-8"]) == (0.5, None)
    log_at(10, tmp_path)  # a new run
    assert lines(tmp_path) == []
