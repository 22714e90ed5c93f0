"""A training step: draw views, predict, loss, backward, optimiser, weight average; its schedule.

The host only fills a few scalars (learning rate, averaging weight, mosaic switch) and runs the rest, or
replays it, see `compile_and_capture`. Progress goes from 0 to 1 over a run.
"""

import copy
import math
from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.optim.swa_utils import update_bn

from lensbox.common.errors import ExitCode, LensboxError
from lensbox.model import FaceDetector
from lensbox.train.loss.detection_loss import Losses, TeacherPredictions, detection_loss, teach
from lensbox.train.photographs import StoreTensors
from lensbox.train.run.origin import Teachers, fold_count
from lensbox.train.settings import ConfigError, TrainConfig
from lensbox.train.views.make_views import Draws, Views, draw, make_views, plain_views


class TrainingError(LensboxError, RuntimeError):
    """A run that cannot go on, such as one whose loss is no longer a number."""

    exit_code = ExitCode.BROKE_DOWN


class TrainStep:
    """Model, its weight average, optimiser and the step on them.

    Attributes: device, of the photographs and all else; model, the detector being trained; average, its
    exponential moving average, in eval mode; step, optimiser steps done; teachers, sets of detectors whose
    predictions are learned too; captured, the CUDA graph of `body`, if any; mode, the compiled and captured
    parts, in words; memory_format, of the nets and their images.

    Raise ConfigError if the batch cannot be divided among the teachers' folds.
    """

    def __init__(
        self, model: FaceDetector, store: StoreTensors, config: TrainConfig, teachers: Teachers = ()
    ) -> None:
        batch_size, folds = config.batch_size, fold_count(teachers)
        if batch_size % folds:
            raise ConfigError(
                f"batch_size: must be a multiple of {folds}, the teachers' folds, got {batch_size}"
            )
        self.store, self.config, self.teachers = store, config, teachers
        self.device = device = store.images.device
        self.memory_format = torch.channels_last if config.channels_last else torch.contiguous_format
        self.model = self._placed(model).train()
        self.average = copy.deepcopy(self.model).eval().requires_grad_(False)
        self._learned, self._averaged = map(floating_point_state, (self.model, self.average))
        if device.type == "cpu" and config.bf16:
            keep_wide_depthwise_float32(self.model)
        for teacher in chain(*teachers):
            self._placed(teacher).eval()
        self.step = 0
        self.mode = "eager"
        self._parameters = [p for p in self.model.parameters() if p.requires_grad]
        self._rate = torch.zeros((), device=device)
        self._ema_weight = torch.zeros((), device=device)
        self._mosaic_on = torch.ones((), device=device)
        self._sums = torch.zeros(len(Losses._fields) + 1, device=device)  # the last counts steps
        capturable = device.type == "cuda" and config.cuda_graph
        self.optimizer = make_optimizer(self._parameters, self._rate, config.weight_decay, capturable)
        self.captured: torch.cuda.CUDAGraph | None = None

    def run(self, progress: float) -> None:
        """Do one step, whose scalars follow from `progress` (0 to 1). Do not wait for the device."""
        self._rate.fill_(learning_rate(progress, self.config))
        self._ema_weight.fill_(ema_weight(self.step, self.config))
        self._mosaic_on.fill_(mosaic_on(progress, self.config))
        if self.captured is not None:
            self.captured.replay()
        else:
            self.body()
        self.step += 1

    def body(self) -> None:
        """Do a step with the scalars as they are. A CUDA graph holds this."""
        views = self.draw_views(self.new_draws())
        self.optimizer.zero_grad(set_to_none=True)
        losses = self.losses(*views, self.ask_teachers(views.images) if self.teachers else None)
        losses.loss.backward()
        if self.config.gradient_clip > 0:
            torch.nn.utils.clip_grad_norm_(self._parameters, self.config.gradient_clip)
        self.optimizer.step()
        move_average(self._averaged, self._learned, self._ema_weight)
        self._sums += torch.stack([*(value.detach() for value in losses), torch.ones_like(losses.positives)])

    def new_draws(self) -> Draws:
        """Return the random numbers of one batch."""
        return draw(self.config, self._mosaic_on)

    # `compile_and_capture` puts compiled functions in the place of the next three.

    def draw_views(self, draws: Draws) -> Views:
        """Draw the views of one batch."""
        return make_views(self.store, draws, self.config)

    def ask_teachers(self, images: Tensor) -> TeacherPredictions:
        """Return the teachers' predictions for images [B, 1, 256, 256]."""
        images = images.contiguous(memory_format=self.memory_format)
        with self._autocast():
            return teach(self.teachers, images)

    def losses(
        self, images: Tensor, targets: Tensor, ignored: Tensor, taught: TeacherPredictions | None = None
    ) -> Losses:
        """Return the losses of views, and of what the teachers say of them."""
        with self._autocast():
            boxes, logits = self.model(images.contiguous(memory_format=self.memory_format))
        return detection_loss(boxes.float(), logits.float(), targets, ignored, self.config, taught)

    def read_sums(self) -> dict[str, float]:
        """Return the means of `Losses` over the steps since the last call (waits for the device)."""
        *sums, steps = self._sums.tolist()
        self._sums.zero_()
        return {name: value / max(steps, 1.0) for name, value in zip(Losses._fields, sums, strict=True)}

    def recalibrate(self) -> None:
        """Measure the weight average's batch-norm statistics anew, on whole photographs.

        The average of many nets' statistics is not the statistics of the average net (Izmailov et al. 2018,
        arXiv:1803.05407): with a high rate and a long average that cost several points of precision. And
        whole photographs are what the detector will see, augmented views are not.
        """
        plain = plain_views(self.config)
        no_mosaics = torch.zeros((), device=self.device)
        generator = torch.Generator(self.device).manual_seed(plain.seed)  # training draws go on as ever
        batches = -(-plain.recalibration_views // plain.batch_size)
        draws = (draw(plain, no_mosaics, generator) for _ in range(batches))
        if batches:
            views = (make_views(self.store, each, plain) for each in draws)
            images = (each.images.contiguous(memory_format=self.memory_format) for each in views)
            update_bn(images, self.average)

    def is_finite(self) -> bool:
        """Return whether every weight is a finite number (waits for the device)."""
        return bool(torch.nn.utils.get_total_norm(self._learned).isfinite())

    def state(self) -> dict[str, Any]:
        """Return everything that the next step depends on."""
        cuda = torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None
        return {
            "model": self.model.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "generators": (torch.get_rng_state(), cuda),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Load what `state` returned. Call it before the step is compiled and captured."""
        self.model.load_state_dict(state["model"])
        self.average.load_state_dict(state["average"])
        load_moments(self.optimizer, state["optimizer"], self._rate)
        self.step = int(state["step"])
        cpu, cuda = state["generators"]
        torch.set_rng_state(cpu)
        if self.device.type == "cuda" and cuda is not None:
            torch.cuda.set_rng_state(cuda, self.device)

    def _placed(self, net: FaceDetector) -> FaceDetector:
        """Move a net to the device, in the memory format of its images."""
        # The stub of Module.to lacks this overload.
        return net.to(self.device).to(memory_format=self.memory_format)  # type: ignore[call-overload,no-any-return]

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.bf16)


def keep_wide_depthwise_float32(model: torch.nn.Module) -> None:
    """Take depthwise convolutions wider than 3x3 out of CPU autocast.

    oneDNN has no fast bfloat16 gradient for them: with 64 channels, 5x5, stride 2, a batch of 64 took 40 ms,
    against 1.7 ms in float32.
    """
    for module in model.modules():
        if isinstance(module, torch.nn.Conv2d) and module.groups > 1 and module.kernel_size[0] > 3:
            module.forward = partial(_in_float32, module)  # type: ignore[method-assign]


def _in_float32(conv: torch.nn.Conv2d, x: Tensor) -> Tensor:
    with torch.autocast("cpu", enabled=False):
        return torch.nn.Conv2d.forward(conv, x.float()).to(x.dtype)


def learning_rate(progress: float, config: TrainConfig) -> float:
    """Return the rate: linear warm-up, then a cosine down to the final rate."""
    if progress < config.warmup_progress:
        return config.learning_rate * max(progress / config.warmup_progress, 1e-3)
    share = (progress - config.warmup_progress) / (1 - config.warmup_progress)
    cosine = 0.5 * (1 + math.cos(math.pi * share))
    return config.final_learning_rate + (config.learning_rate - config.final_learning_rate) * cosine


def ema_weight(step: int, config: TrainConfig) -> float:
    """Return the weight of the newest parameters in the average: large at first, to forget the start."""
    return 1 - min(config.ema_decay, (1 + step) / (config.ema_warmup + step))


def mosaic_on(progress: float, config: TrainConfig) -> float:
    """Return 1 while mosaics are drawn, 0 in the last part of the run."""
    return 1.0 if progress < 1 - config.plain_progress else 0.0


def make_optimizer(
    parameters: Sequence[Tensor], rate: Tensor, weight_decay: float, capturable: bool
) -> torch.optim.AdamW:
    """Return AdamW with weight decay on parameters of more than one dimension.

    rate: scalar tensor with the learning rate, on the device of the parameters. capturable: steps will be
    captured into a CUDA graph.
    """
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=rate, fused=True, capturable=capturable)


def load_moments(optimizer: torch.optim.AdamW, state: dict[str, Any], rate: Tensor) -> None:
    """Load the moments and step counts of a `state_dict`. Rates, weight decay and all other options stay
    what the configuration made them: a resumed run may have changed them."""
    options = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({**state, "param_groups": options})
    for group in optimizer.param_groups:
        group["lr"] = rate  # loading put a copy in its place


@torch.no_grad()
def move_average(averaged: list[Tensor], learned: list[Tensor], weight: Tensor) -> None:
    """Add weight · (learned - averaged) to the average, batch norm's statistics included."""
    difference = torch._foreach_sub(learned, averaged)
    torch._foreach_mul_(difference, weight)
    torch._foreach_add_(averaged, difference)


def floating_point_state(model: torch.nn.Module) -> list[Tensor]:
    """Return weights and statistics, but not batch norm's counters."""
    return [value for value in model.state_dict(keep_vars=True).values() if value.is_floating_point()]
