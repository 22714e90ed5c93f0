"""Train the article's net on its random data, and show which way its objective leads.

The article's function returns the mean GIoU of the boxes, and calls it the loss. `Objective` has both: to
minimise that, and to minimise 1 - GIoU, which is what `lensbox.ops` computes.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from lensbox.common.errors import InputError
from lensbox.common.files import atomic_write, require_writable_folder
from lensbox.model import ArticleNet
from lensbox.ops import PackedTargets, jagged_giou_loss
from lensbox.train.article.random_data import ArticleConfig, article_config, held_out_batch, load_batches
from lensbox.train.choices import chosen_device
from lensbox.train.cli import TrainArguments
from lensbox.train.errors import ConfigError, TrainingError
from lensbox.train.run import process_group
from lensbox.train.run.arithmetic import use_fast_kernels
from lensbox.train.run.checkpoint import load_checkpoint, save_checkpoint, set_aside
from lensbox.train.run.optimizer import load_moments
from lensbox.train.run.reports import ProgressBar, ScalarLog, open_progress_bar
from lensbox.train.run.run import CHECKPOINT_FILE
from lensbox.train.settings_files import CONFIG_FILE, given_settings

Objective = Literal["1 - GIoU", "mean GIoU"]
OBJECTIVES: tuple[Objective, ...] = ("mean GIoU", "1 - GIoU")
HELD_OUT = 64
# An inverted box has no overlap and no gradient that would change that, so all boxes begin on the canvas.
FIRST_BOX = (64.0, 64.0, 192.0, 192.0)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunOptions:
    """output: folder for the files of this run. resume: go on from the checkpoint there, if there is one."""

    output: Path
    device: torch.device
    resume: bool = False
    tensorboard: bool = False


class Outcome(NamedTuple):
    """Mean GIoU on samples that training did not see, before the first step and after the last."""

    before: float
    after: float
    steps: int
    seconds: float


class ArticleRun:
    """A run that minimises one of the objectives, ready for its first step or taken up from its checkpoint.

    Raises:
        InputError: the checkpoint is damaged, or of another net or objective.
    """

    def __init__(self, objective: Objective, config: ArticleConfig, options: RunOptions) -> None:
        self.objective, self.config, self.options = objective, config, options
        torch.manual_seed(config.seed)
        self.net = make_net(config).to(options.device).train()
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=config.learning_rate, fused=True)
        self.step = 0
        self._call = torch.compile(self.net, dynamic=False) if config.compile else self.net
        self._checkpoint = options.output / CHECKPOINT_FILE
        if options.resume and self._checkpoint.is_file():
            self.before = self._take_up()
            logger.info("resuming at step %d", self.step)
        else:
            self.before = self.mean_giou()

    def train(self, bar: ProgressBar | None = None) -> Outcome:
        """Do the steps; write log and checkpoints. Raise TrainingError for a loss that is not finite."""
        config, device = self.config, self.options.device
        started = reported = saved = time.monotonic()
        log = ScalarLog(self.options.output, self.step, self.options.tensorboard)
        batches = load_batches(config, self.step, pin_memory=device.type == "cuda")
        first_step = reported_step = self.step
        total = torch.zeros((), device=device)  # of losses, on the device so that no step waits for it
        while self.step < config.steps:
            total += self.do_step(*next(batches))
            now = time.monotonic()
            if now - reported >= config.log_seconds or self.step == config.steps:
                giou = 1 - self._finite(total) / (self.step - reported_step)
                rate = (self.step - reported_step) * config.batch_size / (time.monotonic() - reported)
                self._report(log, bar, giou, rate)
                total.zero_()
                reported, reported_step = time.monotonic(), self.step
            if now - saved >= config.checkpoint_seconds:
                self._finite(total)  # a broken state takes no good one's place
                self._save()
                saved = time.monotonic()
        if self.step > first_step:
            self._save()
        return Outcome(self.before, self.mean_giou(), self.step, time.monotonic() - started)

    def do_step(self, images: Tensor, targets: PackedTargets) -> Tensor:
        """Do one optimiser step on a batch. Return the mean of 1 - GIoU, whichever objective is minimised."""
        images = images.to(self.options.device, non_blocking=True)
        loss = self._loss(self._call, images, targets)
        self.optimizer.zero_grad(set_to_none=True)
        (loss if self.objective == "1 - GIoU" else 1 - loss).backward()
        self.optimizer.step()
        self.step += 1
        return loss.detach()

    def mean_giou(self) -> float:
        """Return the mean GIoU on samples that training does not see."""
        images, targets = held_out_batch(self.config, HELD_OUT)
        with torch.no_grad():
            return 1 - float(self._loss(self.net, images.to(self.options.device), targets))

    def _loss(self, net: Callable[[Tensor], Tensor], images: Tensor, targets: PackedTargets) -> Tensor:
        device = self.options.device
        with torch.autocast(device.type, torch.bfloat16, enabled=self.config.bf16):
            pred = net(images)
        moved = targets.to(device, non_blocking=True)
        return jagged_giou_loss(pred, moved.values, moved.offsets)

    def _report(self, log: ScalarLog, bar: ProgressBar | None, giou: float, rate: float) -> None:
        progress = self.step / self.config.steps
        if bar is not None:
            bar.advance(progress)
            bar.show(f"minimise {self.objective}: step {self.step}, {rate:.0f} img/s, mean GIoU {giou:.4f}")
        else:
            line = "minimise %s: %5.1f%% step %6d  %8.0f img/s  mean GIoU %7.4f"
            logger.info(line, self.objective, 100 * progress, self.step, rate, giou)
        log.write(self.step, {"progress": progress, "images_per_second": rate, "mean_giou": giou})

    def _finite(self, total: Tensor) -> float:
        value = float(total)
        if not math.isfinite(value):
            raise TrainingError(f"loss must be finite, got {value} at step {self.step}")
        return value

    def _kind(self) -> dict[str, object]:
        return {
            "objective": self.objective,
            "channels": list(self.config.channels),
            "hidden": self.config.hidden,
        }

    def _save(self) -> None:
        state = {"net": self.net.state_dict(), "optimizer": self.optimizer.state_dict()}
        save_checkpoint(
            self._checkpoint,
            {"article": self._kind(), "step": self.step, "before": self.before, **state},
        )

    def _take_up(self) -> float:
        """Load the checkpoint; return the mean GIoU that the run began with."""
        checkpoint = load_checkpoint(self._checkpoint)
        if checkpoint.get("article") != self._kind():
            raise InputError(
                f"{self._checkpoint} must hold a run of {self._kind()}, got {checkpoint.get('article')}"
            )
        self.net.load_state_dict(checkpoint["net"])
        load_moments(self.optimizer, checkpoint["optimizer"])
        self.step = int(checkpoint["step"])
        return float(checkpoint["before"])


def make_net(config: ArticleConfig) -> ArticleNet:
    """Return the net of the configuration, whose first boxes lie about the middle of the canvas."""
    net = ArticleNet(config.channels, config.hidden)
    with torch.no_grad():
        net.output.bias.copy_(torch.tensor(FIRST_BOX).repeat(net.detections))
    return net


FIGURES_FILE = "figures.json"
# Folders of `--output`.
FOLDERS: dict[Objective, str] = {"mean GIoU": "minimise_mean_giou", "1 - GIoU": "minimise_1_minus_giou"}
# Options that are about photographs or detectors, and what each is where it is not given.
_REFUSED: dict[str, Any] = {
    "data": (),
    "labels": None,
    "strict": False,
    "val": (),
    "time_limit": None,
    "weights": None,
    "teachers": (),
    "leave_out": None,
    "profile": False,
    "contact_sheet": None,
}


def run_train_article(arguments: TrainArguments) -> None:
    """Train twice from the same net: minimising the mean GIoU, which the article's function returns as the
    loss, and minimising 1 - GIoU. Raises one of `lensbox.common.errors`, with its exit code, or OSError."""
    started = time.monotonic()
    _refuse(arguments)
    config = article_config(given_settings(arguments))
    if arguments.print_config:
        print(config.to_json())
        return
    device = chosen_device(arguments.device)
    if device.type == "cuda":
        use_fast_kernels()
    require_writable_folder("--output", arguments.output)
    folders = {objective: arguments.output / folder for objective, folder in FOLDERS.items()}
    if arguments.resume and not any((folder / CHECKPOINT_FILE).is_file() for folder in folders.values()):
        raise ConfigError(f"--resume: there must be a checkpoint in {arguments.output}, got none")
    if not arguments.resume:
        for folder in folders.values():
            set_aside(folder / CHECKPOINT_FILE)
    atomic_write(arguments.output / CONFIG_FILE, (config.to_json() + "\n").encode())
    outcomes: dict[Objective, Outcome] = {}
    for objective in OBJECTIVES:
        options = RunOptions(folders[objective], device, arguments.resume, arguments.tensorboard)
        with open_progress_bar() as bar:
            outcomes[objective] = ArticleRun(objective, config, options).train(bar)
    figures = {
        "mean_giou": {objective: outcome._asdict() for objective, outcome in outcomes.items()},
        "config": dataclasses.asdict(config),
        "command": arguments.command,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
    }
    path = arguments.output / FIGURES_FILE
    atomic_write(path, (json.dumps(figures, indent=2) + "\n").encode())
    print("\n".join(outcome_lines(outcomes, config)))
    print(f"wrote {path} after {time.monotonic() - started:.0f} s", flush=True)


def outcome_lines(outcomes: Mapping[Objective, Outcome], config: ArticleConfig) -> list[str]:
    """Return the lines of the table: mean GIoU before and after, by objective."""
    lines = [
        f"mean GIoU of {HELD_OUT} samples that training did not see; {config.steps} steps of "
        f"{config.batch_size} samples",
        f"{'minimised':<12}{'before':>9}{'after':>9}",
    ]
    for objective, outcome in outcomes.items():
        verdict = "better" if outcome.after > outcome.before else "worse"
        lines.append(f"{objective:<12}{outcome.before:9.4f}{outcome.after:9.4f}  {verdict}")
    return lines


def _refuse(arguments: TrainArguments) -> None:
    for name, absent in _REFUSED.items():
        if getattr(arguments, name) != absent:
            option = "--" + {"teachers": "teacher"}.get(name, name).replace("_", "-")
            raise ConfigError(f"{option} must not be given with --dataset random")
    if process_group.announced() > 1:
        raise ConfigError(
            f"--dataset random trains in one process, got {process_group.announced()} from torchrun"
        )
