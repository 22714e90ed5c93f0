"""A whole training run: data, steps, reports, checkpoints, evaluation, and the files it leaves behind.

A run's folder holds `config.json`, `log.jsonl`, `checkpoint.pt`, and at the end `weights.safetensors` and
`figures.json`.
"""

from __future__ import annotations

import json
import platform
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from lensbox.model import DetectorConfig, FaceDetector, save_detector
from lensbox.train.checkpoint import load_checkpoint, save_checkpoint, write_atomically
from lensbox.train.config import TrainConfig
from lensbox.train.evaluation import EvaluationSet, Figures, evaluate
from lensbox.train.image_store import ImageStore
from lensbox.train.scalar_log import ScalarLog
from lensbox.train.schedule import Clock, learning_rate
from lensbox.train.step_profile import profile_step
from lensbox.train.train_step import TrainStep

STEPS_IN_FLIGHT = 3
UNITLESS = ("loss_share", "images_per_second")


class TrainingError(RuntimeError):
    """A run that cannot go on, such as one whose loss is no longer a number."""


@dataclass(frozen=True)
class RunOptions:
    """What a run is given besides its configuration.

    Attributes:
        output: folder for the run's files.
        device: where to train.
        time_limit: seconds from `started` until the last step, or None for `config.steps` steps.
        started: `time.monotonic()` when the clock of the run began; reading data and compiling count.
        resume: go on from `output`/checkpoint.pt, which must exist.
        recipe: more facts for the metadata of the weights, such as the command line and data.
        profile: time a step and its parts, print that, and stop.
        tensorboard: also log to TensorBoard, in `output`/tensorboard.
        stop_after: leave after this many steps with a checkpoint, as an interruption would (for tests).
    """

    output: Path
    device: torch.device
    time_limit: float | None
    started: float
    resume: bool
    recipe: dict[str, str]
    tensorboard: bool = False
    profile: bool = False
    stop_after: int | None = None


def train(
    store: ImageStore,
    validation: EvaluationSet | None,
    config: TrainConfig,
    options: RunOptions,
    report: Callable[[str], None] = print,
    refill: Callable[[], None] | None = None,
) -> Figures | None:
    """Trains a detector and writes the files of the run.

    Args:
        store: photographs to draw views from.
        validation: photographs to score the weight average on, or None.
        refill: called after every step; it may exchange photographs of the store.

    Returns:
        The figures of the last evaluation, None without validation data.

    Raises:
        TrainingError: the loss is not finite.
        FileNotFoundError: `resume` without a checkpoint.
    """
    main = not dist.is_initialized() or dist.get_rank() == 0
    report = report if main else _silent
    torch.manual_seed(config.seed)  # the same first weights in every process
    step = TrainStep(
        FaceDetector(DetectorConfig.named(config.model)), store.tensors, config, options.device, report
    )
    progress = 0.0
    if options.resume:
        checkpoint = load_checkpoint(options.output / "checkpoint.pt")
        step.load_state(checkpoint["step"])
        progress = float(checkpoint["progress"])
        report(f"resuming at step {step.step}, {progress:.1%} of the run")
    elif dist.is_initialized():
        torch.manual_seed(config.seed + 1 + dist.get_rank())  # other views in every process
    step.prepare(progress)
    if options.profile:
        for name, value in profile_step(step).items():
            report(f"{name:18} {value:10.3f}{'' if name in UNITLESS else ' ms'}")
        return None

    def seconds() -> float:
        return time.monotonic() - options.started

    clock = Clock(config.steps, options.time_limit, seconds(), progress)
    report(f"step: {step.mode}; {config.batch_size} views a step; training starts at {seconds():.1f} s")
    log = _RunLog(step, config, options, report, main)
    evaluations = [(i + 1) / (config.evaluations + 1) for i in range(config.evaluations)]
    evaluations = [share for share in evaluations if share > progress]
    in_flight: deque[Any] = deque()
    saved = time.monotonic()
    first = step.step

    while (progress := max(progress, _agree(clock.progress(step.step, seconds()), options.device))) < 1:
        step.run(progress)
        if refill is not None:
            refill()
        _throttle(in_flight, options.device)
        log.after_step(progress, clock, seconds())
        if main and evaluations and progress >= evaluations[0]:
            evaluations.pop(0)
            if validation is not None:
                try:
                    log.evaluation(_score(step, validation, options.device, report), progress)
                except RuntimeError as error:  # a run is worth more than its interim figures
                    report(f"evaluation failed, training goes on: {error}")
        stopping = options.stop_after is not None and step.step - first >= options.stop_after
        if main and (stopping or time.monotonic() - saved >= config.checkpoint_seconds):
            _save(step, clock.progress(step.step, seconds()), options.output)
            saved = time.monotonic()
        if stopping:
            return None

    log.report(1.0, clock, seconds())
    if not main:
        return None
    _save(step, 1.0, options.output)
    # The weights are safe before anything else can go wrong; the figures are added to them afterwards.
    _deliver(step, None, config, options, seconds())
    figures = _score(step, validation, options.device, report) if validation is not None else None
    if figures is not None:
        log.evaluation(figures, 1.0)
        _deliver(step, figures, config, options, seconds())
    report(f"wrote {options.output / 'weights.safetensors'} after {step.step} steps and {seconds():.0f} s")
    return figures


class _RunLog:
    """Prints and records what a run does."""

    def __init__(
        self,
        step: TrainStep,
        config: TrainConfig,
        options: RunOptions,
        report: Callable[[str], None],
        main: bool,
    ) -> None:
        self._step, self._config, self._options, self._report = step, config, options, report
        self._file = ScalarLog(options.output, options.resume, options.tensorboard) if main else None
        self._last_time, self._last_step = time.monotonic(), step.step

    def after_step(self, progress: float, clock: Clock, seconds: float) -> None:
        if time.monotonic() - self._last_time >= self._config.log_seconds:
            self.report(progress, clock, seconds)

    def report(self, progress: float, clock: Clock, seconds: float) -> None:
        steps = self._step.step - self._last_step
        if not steps:
            return
        sums = self._step.read_sums()
        now = time.monotonic()
        rate = steps * self._config.batch_size * self._step.world / max(now - self._last_time, 1e-9)
        self._last_time, self._last_step = now, self._step.step
        if not all(map(_is_finite, sums.values())):
            raise TrainingError(f"loss must be finite, got {sums} at step {self._step.step}")
        done = max(progress - clock.start_progress, 1e-6)
        left = (seconds - clock.start_seconds) * (1 - progress) / done
        rate_now = learning_rate(progress, self._config)
        self._report(
            f"{progress:6.1%} step {self._step.step:6d}  {rate:8.0f} img/s  loss {sums['loss']:.4f} "
            f"(cls {sums['classification']:.4f} box {sums['box']:.4f})  positives {sums['positives']:.1f}  "
            f"lr {rate_now:.2e}  {seconds:.0f} s, left {left:.0f} s"
        )
        if self._file is not None:
            self._file.write(
                self._step.step,
                {"progress": progress, "images_per_second": rate, "learning_rate": rate_now, **sums},
            )

    def evaluation(self, figures: Figures, progress: float) -> None:
        if self._file is not None:
            values = {f"AP {name}": value for name, value in figures.average_precision.items()}
            self._file.write(self._step.step, {"progress": progress, **values})


def _is_finite(value: float) -> bool:
    return value - value == 0


def _silent(_: str) -> None:
    """Stands for `print` in all processes but the first."""


def _agree(progress: float, device: torch.device) -> float:
    """The first process's progress, so that all of them stop at the same step."""
    if not dist.is_initialized():
        return progress
    shared = torch.tensor(progress, dtype=torch.float64, device=device)
    dist.broadcast(shared, 0)
    return float(shared)


def _throttle(in_flight: deque[Any], device: torch.device) -> None:
    """Lets the device be a few steps behind, no more: time and Ctrl-C then mean what they seem to."""
    if device.type != "cuda":
        return
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    in_flight.append(event)
    if len(in_flight) > STEPS_IN_FLIGHT:
        in_flight.popleft().synchronize()


def _score(
    step: TrainStep, data: EvaluationSet, device: torch.device, report: Callable[[str], None]
) -> Figures:
    start = time.monotonic()
    figures, _ = evaluate(step.average.detect, data, device)
    for line in figures.lines():
        report(line)
    report(f"evaluation took {time.monotonic() - start:.1f} s")
    return figures


def _save(step: TrainStep, progress: float, output: Path) -> None:
    save_checkpoint(output / "checkpoint.pt", {"step": step.state(), "progress": progress})


def _deliver(
    step: TrainStep, figures: Figures | None, config: TrainConfig, options: RunOptions, seconds: float
) -> None:
    summary = {
        "average_precision": figures.average_precision if figures else None,
        "images": figures.images if figures else 0,
        "best_f1": figures.f1 if figures else None,
        "recommended_threshold": figures.threshold if figures else None,
        "steps": step.step,
        "views": step.step * config.batch_size * step.world,
        "seconds": round(seconds, 1),
        "mode": step.mode,
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(options.device) if options.device.type == "cuda" else "cpu",
        "platform": platform.platform(),
    }
    metadata = {"recipe": config.to_json(), "figures": json.dumps(summary), **options.recipe}
    save_detector(step.average, options.output / "weights.safetensors", metadata)
    whole = {**summary, "config": asdict(config), **options.recipe}
    write_atomically(options.output / "figures.json", (json.dumps(whole, indent=2) + "\n").encode())


def describe_problems(problems: Sequence[object], report: Callable[[str], None], limit: int = 20) -> None:
    """Prints what was skipped in the data, at most `limit` lines of it."""
    for problem in problems[:limit]:
        report(f"skipped: {problem}")
    if len(problems) > limit:
        report(f"skipped: {len(problems) - limit} more")
