"""Says and records how far a run is."""

from __future__ import annotations

import logging
import math
import time
from pathlib import Path

from lensbox.train.errors import TrainingError
from lensbox.train.evaluation.figures import Figures
from lensbox.train.run import process_group
from lensbox.train.run.progress_bar import ProgressBar
from lensbox.train.run.scalar_log import ScalarLog
from lensbox.train.run.schedule import Clock, learning_rate
from lensbox.train.run.step import TrainStep

logger = logging.getLogger(__name__)


class RunLog:
    """Logs a line a report, or shows it on the bar, and appends the same numbers to `log.jsonl`.

    Args:
        folder: of the run. resumed: keep what was logged up to the step that the run takes up.
        tensorboard: log there too.
    """

    def __init__(
        self,
        step: TrainStep,
        clock: Clock,
        folder: Path,
        *,
        resumed: bool,
        tensorboard: bool,
        bar: ProgressBar | None,
    ) -> None:
        self._step, self._clock, self._bar = step, clock, bar
        start = step.step if resumed else 0
        self._file = ScalarLog(folder, start, tensorboard) if process_group.is_first() else None
        self._last_time, self._last_step = time.monotonic(), step.step

    def leave_out(self, seconds: float) -> None:
        """Keeps time that was not spent on steps out of the rate."""
        self._last_time += seconds

    def after_step(self, progress: float, seconds: float) -> None:
        """Reports if it is time to, `seconds` after the run's start."""
        if self._bar is not None:
            self._bar.advance(progress)
        if time.monotonic() - self._last_time >= self._step.config.reports.log_seconds:
            self.report(progress, seconds)

    def report(self, progress: float, seconds: float) -> None:
        """Reports the steps since the last time. Raises TrainingError for a loss that is not finite."""
        if self._bar is not None:
            self._bar.advance(progress)
        step, settings = self._step, self._step.config.optimizer
        steps = step.step - self._last_step
        if not steps:
            return
        sums = step.read_sums()
        now = time.monotonic()
        rate = steps * settings.batch_size * process_group.size() / max(now - self._last_time, 1e-9)
        self._last_time, self._last_step = now, step.step
        if not all(map(math.isfinite, sums.values())):
            raise TrainingError(f"loss must be finite, got {sums} at step {step.step}")
        if self._bar is not None:
            self._bar.show(f"step {step.step}, {rate:.0f} img/s, loss {sums['loss']:.4f}")
        else:
            logger.info("%s", self._line(progress, seconds, rate, sums))
        if self._file is not None:
            values = {"learning_rate": learning_rate(progress, settings), **sums}
            self._file.write(step.step, {"progress": progress, "images_per_second": rate, **values})

    def _line(self, progress: float, seconds: float, rate: float, sums: dict[str, float]) -> str:
        done = max(progress - self._clock.start_progress, 1e-6)
        left = (seconds - self._clock.start_seconds) * (1 - progress) / done
        rate_now = learning_rate(progress, self._step.config.optimizer)
        taught = f" taught {sums['distillation']:.4f}" if self._step.teachers else ""
        return (
            f"{progress:6.1%} step {self._step.step:6d}  {rate:8.0f} img/s  loss {sums['loss']:.4f} "
            f"(cls {sums['classification']:.4f} box {sums['box']:.4f}{taught})  "
            f"positives {sums['positives']:.1f}  lr {rate_now:.2e}  {seconds:.0f} s, "
            f"left {left:.0f} s"
        )

    def evaluation(self, figures: Figures, progress: float) -> None:
        """Records what an evaluation found."""
        if self._file is not None:
            values = {f"AP {name}": value for name, value in figures.average_precision.items()}
            values |= {f"COCO {name}": value for name, value in (figures.coco or {}).items()}
            self._file.write(self._step.step, {"progress": progress, **values})
