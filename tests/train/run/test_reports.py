"""Log lines, progress bar and `log.jsonl`."""

import json
from pathlib import Path
from typing import Any

from lensbox.train.run.reports import ScalarLog


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
