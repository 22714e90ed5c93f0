"""Figures of a run over time: `log.jsonl`, and TensorBoard where it is installed."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from math import isnan
from pathlib import Path
from typing import Any

from lensbox.common.files import atomic_write


class ScalarLog:
    """Appends one line of JSON per report; the same numbers go to TensorBoard on request.

    Args:
        step: where the run takes up: what an interrupted run logged after its checkpoint is dropped.
    """

    def __init__(self, folder: Path, step: int = 0, tensorboard: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "log.jsonl"
        kept = _lines_up_to(step, self._path) if step else []
        atomic_write(self._path, "".join(kept).encode())
        self._writer: Any = None
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter  # optional, and slow to import

            self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1 if step else None)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Logs numbers; one that is NaN is null in JSON, which has no NaN, and left out of TensorBoard."""
        numbers = {name: None if isnan(value) else value for name, value in values.items()}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, "time": time.time(), **numbers}) + "\n")
        if self._writer is not None:
            for name, number in numbers.items():
                if number is not None:
                    self._writer.add_scalar(name, number, step)
            self._writer.flush()


def _lines_up_to(step: int, path: Path) -> list[str]:
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    # An interruption may have cut the last line short.
    return [line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= step]
