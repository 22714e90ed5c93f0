"""Figures of a run over time: `log.jsonl`, and TensorBoard where it is installed."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class ScalarLog:
    """Appends one line of JSON per report; the same numbers go to TensorBoard if it can be imported."""

    def __init__(self, folder: Path, append: bool = False, tensorboard: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "log.jsonl"
        if not append:
            self._path.unlink(missing_ok=True)
        self._writer: Any = None
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter  # optional, and slow to import

            self._writer = SummaryWriter(str(folder / "tensorboard"))

    def write(self, step: int, values: Mapping[str, float]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, "time": time.time(), **values}) + "\n")
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)
            self._writer.flush()
