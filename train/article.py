"""Train the article's net on its random data, and show which way its objective leads (`docs/article.md`).

The article's function returns the mean GIoU of the boxes, and calls it the loss. One run minimises the mean
GIoU, the other one 1 - GIoU, which `lensbox.ops` computes.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import platform
import time
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Strict
from pydantic.dataclasses import dataclass
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, RandomSampler

from lensbox.common.files import atomic_write, require_writable_folder
from lensbox.model import ArticleNet
from lensbox.model.config import CANVAS_SIZE
from lensbox.ops import PackedTargets, collate_packed, jagged_giou_loss
from lensbox.runtime.device import choose_device
from lensbox.train.choices import given_settings, use_fast_kernels
from lensbox.train.cli import TrainArguments
from lensbox.train.errors import ConfigError, TrainingError
from lensbox.train.run import process_group
from lensbox.train.settings import STRICT, Count, CountOrNone, Positive, Seed, with_values

Objective = Literal["1 - GIoU", "mean GIoU"]
OBJECTIVES: tuple[Objective, ...] = ("mean GIoU", "1 - GIoU")
HELD_OUT = 64
# An inverted box has no overlap and no gradient that would change that, so all boxes begin on the canvas.
FIRST_BOX = (64.0, 64.0, 192.0, 192.0)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, config=STRICT)
class ArticleConfig:
    """Everything that decides a run besides its device.

    The article's own net has the channels 32, 64, 128 and 256 and 16384 hidden values; its batches hold 1024.
    """

    seed: Seed = 0
    channels: Annotated[tuple[Count, Count, Count, Count], Strict(False)] = (2, 4, 8, 8)
    hidden: Count = 64
    samples: Count = 1_000_000
    batch_size: Count = 16
    steps: Count = 120
    learning_rate: Positive = 2e-3
    workers: CountOrNone = 0
    compile: bool = False
    bf16: bool = False
    log_seconds: Positive = 5.0


class FakeDataset(Dataset[tuple[Tensor, Tensor]]):
    """The article's random samples; sample i depends on `seed` and i alone.

    A sample is an image, uint8 [1, 256, 256], and boxes, float32 [n, 4] (xyxy, pixels, at least 1 wide and
    high) with n = floor(|N(0, 3)|), at most `max_boxes`.
    """

    def __init__(self, length: int, max_boxes: int = 256, seed: int = 0) -> None:
        self.length, self.max_boxes, self.seed = length, max_boxes, seed

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if not 0 <= index < self.length:
            raise IndexError(f"index must be from 0 to {self.length - 1}, got {index}")
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + index)
        image = torch.randint(0, 256, (1, CANVAS_SIZE, CANVAS_SIZE), generator=generator, dtype=torch.uint8)
        count = int(torch.randn((), generator=generator).mul(3).abs().floor())
        corners = torch.rand(min(count, self.max_boxes), 2, 2, generator=generator) * (CANVAS_SIZE - 1)
        low, high = corners.amin(1).floor(), corners.amax(1).floor() + 1
        return image, torch.cat([low, high], dim=1)


def load_batches(config: ArticleConfig, pin_memory: bool) -> Iterable[tuple[Tensor, PackedTargets]]:
    """Return the batches of a run: images uint8 [B, 1, 256, 256] and their boxes."""
    data = FakeDataset(config.samples, seed=config.seed)
    drawn = RandomSampler(
        data,
        replacement=True,
        num_samples=config.steps * config.batch_size,
        generator=torch.Generator().manual_seed(config.seed),
    )
    return DataLoader(
        data,
        config.batch_size,
        sampler=drawn,
        collate_fn=collate_packed,
        num_workers=config.workers,
        pin_memory=pin_memory,
    )


class Outcome(NamedTuple):
    """Mean GIoU on samples that training did not see, before the first step and after the last."""

    before: float
    after: float
    steps: int
    seconds: float


class ArticleRun:
    """A run that minimises one of the objectives, ready for its first step."""

    def __init__(self, objective: Objective, config: ArticleConfig, device: torch.device) -> None:
        self.objective, self.config, self.device = objective, config, device
        torch.manual_seed(config.seed)
        self.net = ArticleNet(config.channels, config.hidden)
        with torch.no_grad():
            self.net.output.bias.copy_(torch.tensor(FIRST_BOX).repeat(self.net.detections))
        self.net.to(device).train()
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=config.learning_rate, fused=True)
        self._call = torch.compile(self.net, dynamic=False) if config.compile else self.net

    def train(self) -> Outcome:
        """Do the steps. Raise TrainingError for a loss that is not finite."""
        config, before = self.config, self.mean_giou()
        started = reported = time.monotonic()
        reported_step = 0
        total = torch.zeros((), device=self.device)  # of losses, on the device so that no step waits for it
        for step, batch in enumerate(load_batches(config, pin_memory=self.device.type == "cuda"), 1):
            total += self.do_step(*batch)
            now = time.monotonic()
            if now - reported >= config.log_seconds or step == config.steps:
                loss = float(total) / (step - reported_step)
                if not math.isfinite(loss):
                    raise TrainingError(f"loss must be finite, got {loss} at step {step}")
                rate = (step - reported_step) * config.batch_size / (time.monotonic() - reported)
                line = "minimise %s: %5.1f%% step %6d  %8.0f img/s  mean GIoU %7.4f"
                logger.info(line, self.objective, 100 * step / config.steps, step, rate, 1 - loss)
                total.zero_()
                reported, reported_step = time.monotonic(), step
        return Outcome(before, self.mean_giou(), config.steps, time.monotonic() - started)

    def do_step(self, images: Tensor, targets: PackedTargets) -> Tensor:
        """Do one optimiser step on a batch. Return the mean of 1 - GIoU, whichever objective is minimised."""
        loss = self._loss(images, targets)
        self.optimizer.zero_grad(set_to_none=True)
        (loss if self.objective == "1 - GIoU" else 1 - loss).backward()
        self.optimizer.step()
        return loss.detach()

    def mean_giou(self) -> float:
        """Return the mean GIoU on samples that training does not see."""
        data = FakeDataset(HELD_OUT, seed=self.config.seed + 1)
        with torch.no_grad():
            return 1 - float(self._loss(*collate_packed([data[index] for index in range(HELD_OUT)])))

    def _loss(self, images: Tensor, targets: PackedTargets) -> Tensor:
        images = images.to(self.device, non_blocking=True)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.bf16):
            pred = self._call(images)
        moved = targets.to(self.device, non_blocking=True)
        return jagged_giou_loss(pred, moved.values, moved.offsets)


def run_train_article(arguments: TrainArguments) -> None:
    """Train twice from the same net, once with each objective, and write `figures.json`.

    Raises one of `lensbox.common.errors`, with its exit code, or OSError.
    """
    started = time.monotonic()
    if process_group.announced() > 1:
        raise ConfigError(
            f"--model article trains in one process, got {process_group.announced()} from torchrun"
        )
    config = with_values(ArticleConfig(), given_settings(arguments))
    if arguments.print_config:
        print(json.dumps(dataclasses.asdict(config), indent=2))
        return
    device = choose_device(arguments.device)
    if device.type == "cuda":
        use_fast_kernels()
    require_writable_folder("--output", arguments.output)
    outcomes: dict[Objective, Outcome] = {}
    for objective in OBJECTIVES:
        outcomes[objective] = ArticleRun(objective, config, device).train()
    figures = {
        "mean_giou": {objective: outcome._asdict() for objective, outcome in outcomes.items()},
        "config": dataclasses.asdict(config),
        "command": arguments.command,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
    }
    path = arguments.output / "figures.json"
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
