"""A whole training run: steps, reports, checkpoints, evaluation, and the files it leaves behind.

A run's folder holds `config.json` from the start, `log.jsonl`, `checkpoint.pt`, `best.safetensors` from the
first evaluation on, and at the end `weights.safetensors` and `figures.json`.
"""

import io
import logging
import platform
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from lensbox.common.errors import InputError
from lensbox.common.files import atomic_write, open_regular
from lensbox.evaluation.data.labels import LabelledImage
from lensbox.evaluation.evaluate import evaluate
from lensbox.evaluation.figures import Figures
from lensbox.model import DetectorConfig, FaceDetector
from lensbox.train.photographs import StoreTensors
from lensbox.train.run.compile_and_capture import compile_and_capture
from lensbox.train.run.origin import Origin, check_same_origin
from lensbox.train.run.reports import FIGURES_FILE, Reports
from lensbox.train.run.step import TrainingError, TrainStep
from lensbox.train.settings import CONFIG_FILE, TrainConfig, TrainInputs

CHECKPOINT_FILE = "checkpoint.pt"
FORMAT = 4  # of checkpoints
STEPS_IN_FLIGHT = 3

logger = logging.getLogger(__name__)


class TrainingRun:
    """A run on the photographs of a store, new or resumed from its checkpoint, compiled and captured.

    inputs: its folder, and whether to go on from the checkpoint in the folder. origin: initial weights and
    teachers; a resumed run needs the same fold left out and teachers. command: the command line, for the
    metadata of the weights. started: `time.monotonic()` when the program began, for the seconds in reports.

    Attributes: step, with the network; progress, the share of the steps, 0 to 1; best, the highest average
    precision for faces of at least 8 px of the resumed run, or -1; origin, facts for the metadata.

    Raise InputError if the checkpoint is missing, damaged, or of another detector, and ConfigError if a
    resumed run has other teachers or another fold left out.
    """

    def __init__(
        self,
        store: StoreTensors,
        config: TrainConfig,
        inputs: TrainInputs,
        origin: Origin,
        command: str,
        started: float,
    ) -> None:
        self.config, self.inputs, self.command, self.started = config, inputs, command, started
        self.progress, self.best, self.origin = 0.0, -1.0, origin.facts
        torch.manual_seed(config.seed)
        detector = FaceDetector(DetectorConfig.named(config.model))
        if origin.detector is not None:
            detector.load_state_dict(origin.detector.state_dict())
        self.step = TrainStep(detector, store, config, origin.teachers)
        if inputs.resume:
            self._resume(inputs.output / CHECKPOINT_FILE)
            logger.info("resuming at step %d, %.1f%% of the run", self.step.step, 100 * self.progress)
        if self.progress < 1:
            compile_and_capture(self.step, self.progress)

    def train(
        self, validation: Sequence[LabelledImage] = (), accounts: Mapping[str, Any] | None = None
    ) -> Figures | None:
        """Do the steps and write the files of the run. Return the figures of its end, if there is validation.

        validation: photographs to score the weight average on. accounts: of the labels, for `figures.json`.
        Raise TrainingError if the loss or a weight is not finite.
        """
        config, inputs = self.config, self.inputs
        for earlier in (inputs.output / CHECKPOINT_FILE, inputs.output / FIGURES_FILE):
            if not inputs.resume and earlier.is_file():  # of another run, with which --resume must not go on
                logger.warning("%s of an earlier run is now earlier_%s", earlier, earlier.name)
                earlier.replace(earlier.with_name(f"earlier_{earlier.name}"))
        atomic_write(inputs.output / CONFIG_FILE, (config.to_json(indent=2) + "\n").encode())
        start = "step: %s; %d views a step; training starts at %.1f s"
        logger.info(start, self.step.mode, config.batch_size, time.monotonic() - self.started)
        photographs = str(len(self.step.store.images))
        about = {"command": self.command, "photographs": photographs, "python": platform.python_version()}
        reports = Reports(inputs, self.step, self.started, self.progress, {**about, **self.origin}, accounts)
        reports.best = self.best
        self._do_steps(reports, validation)
        reports.report(1.0)
        self._save(reports.best)
        return self._deliver(reports, validation)

    def _do_steps(self, reports: Reports, validation: Sequence[LabelledImage]) -> None:
        count = self.config.evaluations
        shares = [(i + 1) / (count + 1) for i in range(count)]
        evaluations = deque(share for share in shares if share > self.progress)
        in_flight: deque[Any] = deque()
        saved = time.monotonic()
        while True:
            due = time.monotonic() - saved >= self.config.checkpoint_seconds
            self.progress = max(self.progress, min(self.step.step / self.config.steps, 1.0))
            if self.progress >= 1:
                return
            # Before saving: a resumed run takes the progress of its checkpoint for evaluated.
            if evaluations and self.progress >= evaluations[0]:
                evaluations.popleft()
                if validation:
                    self._evaluate_between(reports, validation)
            if due:
                self._save(reports.best)
                saved = time.monotonic()
            self.step.run(self.progress)
            _throttle(in_flight, self.step.device)
            reports.after_step(self.progress)

    def _evaluate_between(self, reports: Reports, validation: Sequence[LabelledImage]) -> None:
        start = time.monotonic()
        try:
            self.step.recalibrate()
            figures = evaluate_average(self.step, validation)
            for line in figures.lines():
                logger.info("%s", line)
            reports.evaluated(figures, self.progress)
        except (RuntimeError, InputError) as error:  # a run is worth more than its interim figures
            logger.warning("evaluation failed, training goes on: %s", error)
        reports.exclude_time(time.monotonic() - start)

    def _deliver(self, reports: Reports, validation: Sequence[LabelledImage]) -> Figures | None:
        self.step.recalibrate()
        # The weights are safe before anything else can go wrong; the figures are added to them afterwards.
        reports.deliver(None)
        if not validation:
            return None
        figures = evaluate_average(self.step, validation)
        reports.evaluated(figures, 1.0)
        reports.deliver(figures)
        return figures

    def _save(self, best: float) -> None:
        """Write the checkpoint. Raise TrainingError, and keep the last one, if weights are not finite."""
        step = self.step
        if not step.is_finite():
            raise TrainingError(
                f"weights must be finite, got NaN or infinity at step {step.step}; kept the last checkpoint"
            )
        checkpoint = {
            "step": step.state(),
            "progress": self.progress,
            "best": best,
            "detector": step.model.config.to_json(),
            "origin": self.origin,
        }
        save_checkpoint(self.inputs.output / CHECKPOINT_FILE, checkpoint)

    def _resume(self, path: Path) -> None:
        checkpoint = load_checkpoint(path)
        expected = self.step.model.config.to_json()
        if checkpoint.get("detector") != expected:
            raise InputError(f"{path} must hold the detector {expected}, got {checkpoint.get('detector')}")
        self.step.load_state(checkpoint["step"])
        before = checkpoint.get("origin", {})
        check_same_origin(self.origin, before)
        self.progress, self.best = float(checkpoint["progress"]), float(checkpoint.get("best", -1.0))
        self.origin = before


def evaluate_average(step: TrainStep, photographs: Sequence[LabelledImage]) -> Figures:
    """Return the figures of the weight average."""
    start = time.monotonic()
    figures = evaluate(step.average, photographs)
    logger.info("evaluation took %.1f s", time.monotonic() - start)
    return figures


def _throttle(in_flight: deque[Any], device: torch.device) -> None:
    """Let the device fall a few steps behind at most, so that Ctrl-C acts at once."""
    if device.type != "cuda":
        return
    event = torch.cuda.Event()
    event.record()
    in_flight.append(event)
    if len(in_flight) > STEPS_IN_FLIGHT:
        in_flight.popleft().synchronize()


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Save `state` (tensors, numbers, text, containers of them); the file appears whole or not at all."""
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, **state}, buffer)
    atomic_write(path, buffer.getvalue())


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Load what `save_checkpoint` wrote, on the CPU. Raise InputError for a missing or any other file."""
    try:
        with open_regular(path) as file:
            state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged archive or pickle may fail in any way
        # Without torch's own message, which advises to run whatever code the file holds.
        raise InputError(f"{path} must be a checkpoint, got a missing, damaged or other file") from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise InputError(f"{path} must be a checkpoint of format {FORMAT}")
    return state
