"""The results of a run: log lines, `log.jsonl`, weights with their origin in the metadata, `figures.json`."""

import contextlib
import dataclasses
import json
import logging
import math
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from lensbox.common.files import atomic_write
from lensbox.evaluation.figures import Figures
from lensbox.model import save_detector
from lensbox.model.weights_file import FIGURES_KEY
from lensbox.train.run.step import TrainingError, TrainStep, learning_rate
from lensbox.train.settings import TrainInputs

BEST_FILE = "best.safetensors"
LAST_FILE = "weights.safetensors"
FIGURES_FILE = "figures.json"
LOG_FILE = "log.jsonl"

logger = logging.getLogger(__name__)


def _lines_up_to(step: int, path: Path) -> list[str]:
    if not path.is_file():
        return []
    kept = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        # An interruption may have damaged a line.
        with contextlib.suppress(ValueError, LookupError, TypeError):
            if json.loads(line)["step"] <= step:
                kept.append(f"{line}\n")
    return kept


class Reports:
    """Log a line per report, and write the results of a run into its folder.

    inputs: with --resume, keep the lines of `log.jsonl` up to the step. started: `time.monotonic()` when the
    program began. progress: of the run, now. facts: for the metadata of weights: command line, data, first
    weights, teachers. accounts: of the labels, for `figures.json`. The attribute best is the highest average
    precision for faces of at least 8 px so far.
    """

    def __init__(
        self,
        inputs: TrainInputs,
        step: TrainStep,
        started: float,
        progress: float,
        facts: Mapping[str, str],
        accounts: Mapping[str, Any] | None = None,
    ) -> None:
        self.best = -1.0
        self._output, self._step, self._facts, self._accounts = inputs.output, step, facts, accounts or {}
        self._started, self._first_progress = started, progress
        self._first_time = self._last_time = time.monotonic()
        self._last_step = step.step
        log = inputs.output / LOG_FILE
        atomic_write(log, "".join(_lines_up_to(step.step, log) if inputs.resume else []).encode())

    def exclude_time(self, seconds: float) -> None:
        """Take seconds that were not spent on steps out of the rate."""
        self._last_time += seconds

    def after_step(self, progress: float) -> None:
        """Report if `log_seconds` have passed."""
        if time.monotonic() - self._last_time >= self._step.config.log_seconds:
            self.report(progress)

    def report(self, progress: float) -> None:
        """Report the steps since the last time. Raise TrainingError for a loss that is not finite."""
        step, config = self._step, self._step.config
        steps = step.step - self._last_step
        if not steps:
            return
        means = step.read_sums()
        now = time.monotonic()
        rate = steps * config.batch_size / max(now - self._last_time, 1e-9)
        self._last_time, self._last_step = now, step.step
        if not all(map(math.isfinite, means.values())):
            raise TrainingError(f"loss must be finite, got {means} at step {step.step}")
        done = max(progress - self._first_progress, 1e-6)
        seconds, left = now - self._started, (now - self._first_time) * (1 - progress) / done
        taught = f" taught {means['distillation']:.4f}" if step.teachers else ""
        speed = f"{rate:8.0f}" if rate >= 10 else f"{rate:8.1f}"
        logger.info(
            f"{progress:6.1%} step {step.step:6d}  {speed} img/s  loss {means['loss']:.4f} "
            f"(cls {means['classification']:.4f} box {means['box']:.4f}{taught})  "
            f"positives {means['positives']:.1f}  lr {learning_rate(progress, config):.2e}  {seconds:.0f} s, "
            f"left {left:.0f} s"
        )
        values = {"images_per_second": rate, "learning_rate": learning_rate(progress, config), **means}
        self._append(progress, values)

    def evaluated(self, figures: Figures, progress: float) -> None:
        """Log the figures of an evaluation. Write `best.safetensors` if none was better at 8 px and above."""
        values = {f"AP {name}": value for name, value in figures.average_precision.items()}
        self._append(progress, values | {f"COCO {name}": x for name, x in figures.coco.items()})
        score = figures.average_precision["all>=8"]
        if score > self.best:  # without such faces it is not a number
            self.best = score
            self._write_weights(BEST_FILE, figures)

    def deliver(self, figures: Figures | None) -> None:
        """Write `weights.safetensors` and `figures.json`."""
        summary = self._write_weights(LAST_FILE, figures)
        config = dataclasses.asdict(self._step.config)
        whole = {**summary, "account": self._accounts, "config": config, **self._facts}
        atomic_write(self._output / FIGURES_FILE, (json.dumps(whole, indent=2) + "\n").encode())

    def _write_weights(self, name: str, figures: Figures | None) -> dict[str, Any]:
        """Write the weight average, with everything needed to repeat the run in the metadata."""
        step, config = self._step, self._step.config
        on_gpu = step.device.type == "cuda"
        scored = {} if figures is None else figures.to_json()
        scored.pop("account", None)  # its paths are nobody's business
        summary = {
            **scored,
            "steps": step.step,
            "views": step.step * config.batch_size,
            "seconds": round(time.monotonic() - self._started, 1),
            "mode": step.mode,
            "torch": torch.__version__,
            "device": torch.cuda.get_device_name(step.device) if on_gpu else "cpu",
            "platform": platform.platform(),
        }
        # Lone surrogates, which paths that are no UTF-8 contain, must not stand in metadata.
        facts = {key: fact.encode(errors="backslashreplace").decode() for key, fact in self._facts.items()}
        metadata = {"recipe": config.to_json(), FIGURES_KEY: json.dumps(summary), **facts}
        save_detector(step.average, self._output / name, metadata)
        return summary

    def _append(self, progress: float, values: Mapping[str, float]) -> None:
        """Append a line of numbers. NaN becomes null in JSON, which has no NaN."""
        numbers = {name: None if math.isnan(value) else value for name, value in values.items()}
        line = {"step": self._step.step, "time": time.time(), "progress": progress, **numbers}
        with (self._output / LOG_FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
