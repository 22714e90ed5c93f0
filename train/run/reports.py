"""Report how far a run is: log lines and `log.jsonl`."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Mapping
from pathlib import Path

from lensbox.common.errors import ExitCode, LensboxError
from lensbox.common.files import atomic_write
from lensbox.train.evaluation.evaluate import Figures
from lensbox.train.run import process_group
from lensbox.train.run.optimizer import Clock, learning_rate
from lensbox.train.run.step import TrainStep

logger = logging.getLogger(__name__)


class TrainingError(LensboxError, RuntimeError):
    """A run that cannot go on, such as one whose loss is no longer a number."""

    exit_code = ExitCode.BROKE_DOWN


def _lines_up_to(step: int, path: Path) -> list[str]:
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    # An interruption may have cut the last line short.
    return [line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= step]


class RunLog:
    """Log a line per report, and append the same numbers to `log.jsonl`.

    Args:
        folder: of the run. resumed: keep the lines up to the step of the checkpoint.
    """

    def __init__(self, step: TrainStep, clock: Clock, folder: Path, *, resumed: bool) -> None:
        self._step, self._clock = step, clock
        self._path = folder / "log.jsonl" if process_group.is_first() else None
        if self._path is not None:
            folder.mkdir(parents=True, exist_ok=True)
            kept = _lines_up_to(step.step, self._path) if resumed else []
            atomic_write(self._path, "".join(kept).encode())
        self._last_time, self._last_step = time.monotonic(), step.step

    def leave_out(self, seconds: float) -> None:
        """Take seconds that were not spent on steps out of the rate."""
        self._last_time += seconds

    def after_step(self, progress: float, seconds: float) -> None:
        """Report if `log_seconds` have passed. seconds: since the start of the run."""
        if time.monotonic() - self._last_time >= self._step.config.log_seconds:
            self.report(progress, seconds)

    def report(self, progress: float, seconds: float) -> None:
        """Report the steps since the last time. Raise TrainingError for a loss that is not finite."""
        step, config = self._step, self._step.config
        steps = step.step - self._last_step
        if not steps:
            return
        sums = step.read_sums()
        now = time.monotonic()
        rate = steps * config.batch_size * process_group.size() / max(now - self._last_time, 1e-9)
        self._last_time, self._last_step = now, step.step
        if not all(map(math.isfinite, sums.values())):
            raise TrainingError(f"loss must be finite, got {sums} at step {step.step}")
        logger.info("%s", self._line(progress, seconds, rate, sums))
        values = {"learning_rate": learning_rate(progress, config), **sums}
        self._write({"progress": progress, "images_per_second": rate, **values})

    def _line(self, progress: float, seconds: float, rate: float, sums: dict[str, float]) -> str:
        done = max(progress - self._clock.start_progress, 1e-6)
        left = (seconds - self._clock.start_seconds) * (1 - progress) / done
        rate_now = learning_rate(progress, self._step.config)
        taught = f" taught {sums['distillation']:.4f}" if self._step.teachers else ""
        return (
            f"{progress:6.1%} step {self._step.step:6d}  {rate:8.0f} img/s  loss {sums['loss']:.4f} "
            f"(cls {sums['classification']:.4f} box {sums['box']:.4f}{taught})  "
            f"positives {sums['positives']:.1f}  lr {rate_now:.2e}  {seconds:.0f} s, "
            f"left {left:.0f} s"
        )

    def evaluation(self, figures: Figures, progress: float) -> None:
        """Log the figures of an evaluation."""
        values = {f"AP {name}": value for name, value in figures.average_precision.items()}
        values |= {f"COCO {name}": value for name, value in (figures.coco or {}).items()}
        self._write({"progress": progress, **values})

    def _write(self, values: Mapping[str, float]) -> None:
        """Append a line of numbers, in the first process. NaN becomes null in JSON, which has no NaN."""
        if self._path is None:
            return
        numbers = {name: None if math.isnan(value) else value for name, value in values.items()}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": self._step.step, "time": time.time(), **numbers}) + "\n")
