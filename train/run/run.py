"""A whole training run: data, steps, reports, checkpoints, evaluation, and the files it leaves behind.

A run's folder holds `config.json` from the start, `log.jsonl`, `checkpoint.pt`, `best.safetensors` from the
first evaluation on, and at the end `weights.safetensors` and `figures.json`.
"""

from __future__ import annotations

import copy
import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from lensbox.model import DetectorConfig, FaceDetector
from lensbox.train.config.settings import TrainConfig
from lensbox.train.data.folds import LEFT_OUT, Fold
from lensbox.train.data.image_store import ImageStore
from lensbox.train.errors import ConfigError
from lensbox.train.evaluation.coco_precision import CocoMissingError
from lensbox.train.evaluation.evaluate import EvaluationSet, Figures, evaluate
from lensbox.train.loss.distillation import Teachers
from lensbox.train.run.checkpoint import load_checkpoint, save_checkpoint, write_atomically
from lensbox.train.run.delivery import Delivery
from lensbox.train.run.initial_weights import InitialWeights, check_layout
from lensbox.train.run.progress_bar import ProgressBar
from lensbox.train.run.scalar_log import ScalarLog
from lensbox.train.run.schedule import Clock, learning_rate
from lensbox.train.run.step import TrainStep
from lensbox.train.run.step_profile import profile_step

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
        time_limit: seconds from `started` until the last step, or None for `config.optimizer.steps` steps.
        started: `time.monotonic()` when the clock of the run began; reading data and compiling count.
        resume: go on from `output`/checkpoint.pt, which must exist.
        recipe: more facts for the metadata of the weights, such as the command line and data.
        initial: weights to start from, not together with `resume`; None starts from random ones.
        left_out: the fold that the photographs lack; a resumed run needs the one that it had.
        teachers: detectors to learn from besides the labels; a resumed run needs those that it had.
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
    initial: InitialWeights | None = None
    left_out: Fold | None = None
    teachers: Teachers = field(default_factory=Teachers)
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
    bar: ProgressBar | None = None,
) -> Figures | None:
    """Trains a detector and writes the files of the run.

    Args:
        store: photographs to draw views from.
        validation: photographs to score the weight average on, or None.
        report: prints a line. bar: shows the state of the run in the place of lines.
        refill: called after every step; it may exchange photographs of the store.

    Returns:
        The figures of the last evaluation, None without validation data.

    Raises:
        TrainingError: loss or weights are not finite, or the time limit is over before the first step.
        FileNotFoundError: `resume` without a checkpoint.
        ValueError: `resume` with a checkpoint of another detector, or with `initial`.
        ConfigError: `initial` has another layout than `config.model`, or a resumed run other teachers
            or another `left_out`.
    """
    main = not dist.is_initialized() or dist.get_rank() == 0
    report = report if main else _silent
    if options.initial is not None and options.resume:
        raise ValueError("initial must be None with resume, which takes up the weights of the checkpoint")
    torch.manual_seed(config.seed)  # the same first weights in every process
    detector = _first_detector(config, options.initial)
    teachers = options.teachers
    step = TrainStep(detector, store.tensors, config, options.device, report, teachers)
    progress, best = 0.0, -1.0
    origin = _origin(options)
    if options.resume:
        progress, best, began_with = _take_up(step, options.output / "checkpoint.pt")
        _check_origin(origin, began_with)
        origin = began_with
        report(f"resuming at step {step.step}, {progress:.1%} of the run")
    elif dist.is_initialized():
        torch.manual_seed(config.seed + 1 + dist.get_rank())  # other views in every process
    if progress < 1:
        step.prepare(progress)
    if options.profile:
        for name, value in profile_step(step).items():
            report(f"{name:18} {value:10.3f}{'' if name in UNITLESS else ' ms'}")
        return None

    def seconds() -> float:
        return time.monotonic() - options.started

    if options.time_limit is not None and seconds() >= options.time_limit and progress < 1:
        raise TrainingError(
            f"time limit must leave time to train: the first step could start after {seconds():.1f} s, "
            f"got {options.time_limit:g} s"
        )
    if main:
        text = json.dumps(json.loads(config.to_json()), indent=2) + "\n"
        write_atomically(options.output / "config.json", text.encode())
    clock = Clock(config.optimizer.steps, options.time_limit, step.step, seconds(), progress)
    report(
        f"step: {step.mode}; {config.optimizer.batch_size} views a step; training starts at {seconds():.1f} s"
    )
    delivery = Delivery(options.output, config, {**options.recipe, **origin})
    log = _RunLog(step, config, options, report, main, bar)
    evaluations = [(i + 1) / (config.reports.evaluations + 1) for i in range(config.reports.evaluations)]
    evaluations = [share for share in evaluations if share > progress]
    in_flight: deque[Any] = deque()
    if bar is not None:
        bar.begin(progress)
    saved = time.monotonic()
    first = step.step

    while True:
        stopping = options.stop_after is not None and step.step - first >= options.stop_after
        due = stopping or time.monotonic() - saved >= config.reports.checkpoint_seconds
        share, due = _agree(clock.progress(step.step, seconds()), due)
        progress = max(progress, share)
        if due and (progress < 1 or stopping):
            _save(step, progress, best, origin, options.output, main)
            saved = time.monotonic()
        if stopping:
            return None
        if progress >= 1:
            break
        step.run(progress)
        if refill is not None:
            refill()
        _throttle(in_flight, options.device)
        log.after_step(progress, clock, seconds())
        if main and evaluations and progress >= evaluations[0]:
            evaluations.pop(0)
            if validation is not None:
                start = time.monotonic()
                try:
                    step.recalibrate()
                    figures = _score(step, validation, options.device, report)
                    log.evaluation(figures, progress)
                    best = delivery.keep_best(step, figures, best, seconds())
                except RuntimeError as error:  # a run is worth more than its interim figures
                    report(f"evaluation failed, training goes on: {error}")
                log.leave_out(time.monotonic() - start)

    log.report(1.0, clock, seconds())
    _save(step, 1.0, best, origin, options.output, main)
    if not main:
        return None
    # The weights are safe before anything else can go wrong; the figures are added to them afterwards.
    delivery.deliver(step, None, seconds())
    final = _score(step, validation, options.device, report, coco=True) if validation is not None else None
    if final is not None:
        log.evaluation(final, 1.0)
        delivery.keep_best(step, final, best, seconds())
        delivery.deliver(step, final, seconds())
    report(f"wrote {options.output / 'weights.safetensors'} after {step.step} steps and {seconds():.0f} s")
    return final


class _RunLog:
    """Prints and records what a run does."""

    def __init__(
        self,
        step: TrainStep,
        config: TrainConfig,
        options: RunOptions,
        report: Callable[[str], None],
        main: bool,
        bar: ProgressBar | None,
    ) -> None:
        self._step, self._config, self._report, self._bar = step, config, report, bar
        start = step.step if options.resume else 0
        self._file = ScalarLog(options.output, start, options.tensorboard) if main else None
        self._last_time, self._last_step = time.monotonic(), step.step

    def leave_out(self, seconds: float) -> None:
        """Keeps time that was not spent on steps out of the rate."""
        self._last_time += seconds

    def after_step(self, progress: float, clock: Clock, seconds: float) -> None:
        if self._bar is not None:
            self._bar.advance(progress)
        if time.monotonic() - self._last_time >= self._config.reports.log_seconds:
            self.report(progress, clock, seconds)

    def report(self, progress: float, clock: Clock, seconds: float) -> None:
        if self._bar is not None:
            self._bar.advance(progress)
        steps = self._step.step - self._last_step
        if not steps:
            return
        sums = self._step.read_sums()
        now = time.monotonic()
        rate = steps * self._config.optimizer.batch_size * self._step.world / max(now - self._last_time, 1e-9)
        self._last_time, self._last_step = now, self._step.step
        if not all(map(_is_finite, sums.values())):
            raise TrainingError(f"loss must be finite, got {sums} at step {self._step.step}")
        done = max(progress - clock.start_progress, 1e-6)
        left = (seconds - clock.start_seconds) * (1 - progress) / done
        rate_now = learning_rate(progress, self._config.optimizer)
        if self._bar is not None:
            self._bar.show(f"step {self._step.step}, {rate:.0f} img/s, loss {sums['loss']:.4f}")
        else:
            self._report(
                f"{progress:6.1%} step {self._step.step:6d}  {rate:8.0f} img/s  loss {sums['loss']:.4f} "
                f"(cls {sums['classification']:.4f} box {sums['box']:.4f}{self._taught(sums)})  "
                f"positives {sums['positives']:.1f}  lr {rate_now:.2e}  {seconds:.0f} s, left {left:.0f} s"
            )
        if self._file is not None:
            self._file.write(
                self._step.step,
                {"progress": progress, "images_per_second": rate, "learning_rate": rate_now, **sums},
            )

    def _taught(self, sums: dict[str, float]) -> str:
        return f" taught {sums['distillation']:.4f}" if self._step.teachers else ""

    def evaluation(self, figures: Figures, progress: float) -> None:
        if self._file is not None:
            values = {f"AP {name}": value for name, value in figures.average_precision.items()}
            values |= {f"COCO {name}": value for name, value in (figures.coco or {}).items()}
            self._file.write(self._step.step, {"progress": progress, **values})


def _is_finite(value: float) -> bool:
    return value - value == 0


def _silent(_: str) -> None:
    """Stands for `print` in all processes but the first."""


def _agree(progress: float, save: bool) -> tuple[float, bool]:
    """The first process's progress, and whether it wants to save: all must stop and save at the same step.

    This travels between the hosts (gloo), so that no step has to wait for the device.
    """
    if not dist.is_initialized():
        return progress, save
    shared = torch.tensor([progress, float(save)], dtype=torch.float64)
    dist.broadcast(shared, 0)
    return float(shared[0]), bool(shared[1])


def _throttle(in_flight: deque[Any], device: torch.device) -> None:
    """Lets the device be a few steps behind, no more: time and Ctrl-C then mean what they seem to."""
    if device.type != "cuda":
        return
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    in_flight.append(event)
    if len(in_flight) > STEPS_IN_FLIGHT:
        in_flight.popleft().synchronize()


def _first_detector(config: TrainConfig, initial: InitialWeights | None) -> FaceDetector:
    if initial is None:
        return FaceDetector(DetectorConfig.named(config.model))
    check_layout(initial.detector, config)
    return copy.deepcopy(initial.detector)


def _take_up(step: TrainStep, path: Path) -> tuple[float, float, dict[str, str]]:
    """Loads a checkpoint into `step`; returns its progress, the best score so far, and where the run's first
    weights and teachers came from."""
    checkpoint = load_checkpoint(path)
    expected = step.model.config.to_json()
    if checkpoint["detector"] != expected:
        raise ValueError(f"{path} must hold the detector {expected}, got {checkpoint['detector']}")
    step.load_state(checkpoint["step"])
    return float(checkpoint["progress"]), float(checkpoint.get("best", -1.0)), checkpoint.get("origin", {})


def _origin(options: RunOptions) -> dict[str, str]:
    """What the weights of this run come from: facts for their metadata, which a checkpoint keeps."""
    initial = options.initial.origin if options.initial is not None else {}
    left_out = {LEFT_OUT: str(options.left_out)} if options.left_out is not None else {}
    return {**initial, **options.teachers.origin, **left_out}


def _check_origin(now: dict[str, str], before: dict[str, str]) -> None:
    """A resumed run must have the teachers and the photographs that it began with."""
    for option, fact, shown in (
        ("--teacher", "teachers_sha256", "teachers"),
        ("--leave-out", LEFT_OUT, LEFT_OUT),
    ):
        if now.get(fact) != before.get(fact):
            wanted, given = (facts.get(shown, "nothing") for facts in (before, now))
            given = "others of the same names" if given == wanted else given
            raise ConfigError(f"{option} must name what the run began with ({wanted}), got {given}")


def _score(
    step: TrainStep,
    data: EvaluationSet,
    device: torch.device,
    report: Callable[[str], None],
    coco: bool = False,
) -> Figures:
    start = time.monotonic()
    try:
        figures, _ = evaluate(step.average.detect, data, device, coco)
    except CocoMissingError as error:
        report(f"going on without: {error}")
        figures, _ = evaluate(step.average.detect, data, device)
    for line in figures.lines():
        report(line)
    report(f"evaluation took {time.monotonic() - start:.1f} s")
    return figures


def _save(
    step: TrainStep, progress: float, best: float, origin: dict[str, str], output: Path, main: bool
) -> None:
    """The first process writes; all must call it, see `TrainStep.state`. A broken state takes no good one's
    place."""
    if not step.is_finite():
        raise TrainingError(
            f"weights must be finite, got others at step {step.step}; checkpoint kept as it was"
        )
    if main:
        step.recalibrate()  # for who scores the checkpoint
    detector = step.model.config.to_json()
    facts = {"progress": progress, "best": best, "detector": detector, "origin": origin}
    checkpoint = {"step": step.state(), **facts}
    if main:
        save_checkpoint(output / "checkpoint.pt", checkpoint)


def describe_problems(problems: Sequence[object], report: Callable[[str], None], limit: int = 20) -> None:
    """Prints what was skipped in the data, at most `limit` lines of it."""
    for problem in problems[:limit]:
        report(f"skipped: {problem}")
    if len(problems) > limit:
        report(f"skipped: {len(problems) - limit} more")
