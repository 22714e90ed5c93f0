"""One training step: draw views, predict, loss, backward, optimiser, weight average.

On CUDA the whole step is compiled in two pieces (views; net and loss) and captured into one CUDA graph, so
a small net is not bound by kernel launches. Whatever of that fails is reported and replaced by the plain
form. The host only fills a few scalars (learning rate, averaging weight, mosaic switch) and replays.
"""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim.swa_utils import update_bn

from lensbox.model import FaceDetector
from lensbox.model.config import CANVAS_SIZE
from lensbox.train.config.settings import TrainConfig
from lensbox.train.data.image_store import StoreTensors
from lensbox.train.errors import ConfigError
from lensbox.train.loss.assignment import make_levels
from lensbox.train.loss.detection_loss import Losses, detection_loss
from lensbox.train.loss.distillation import Taught, Teachers, teach
from lensbox.train.run.schedule import ema_weight, learning_rate, mosaic_on
from lensbox.train.views.draws import Draws, draw, plain_views, view_counts
from lensbox.train.views.make_views import Views, make_views

WARMUP_STEPS = 4


class TrainStep:
    """Model, its weight average, optimiser and the (captured) step on them.

    Attributes:
        model: the detector being trained, on `device`.
        average: its exponential moving average, in eval mode; this is what a run delivers.
        step: optimiser steps done.
        levels: the detector's levels, with the sizes they take.
        teachers: detectors whose predictions are learned too, on `device`.
        mode: how a step runs, in words.
    """

    def __init__(
        self,
        model: FaceDetector,
        store: StoreTensors,
        config: TrainConfig,
        device: torch.device,
        report: Callable[[str], None] = print,
        teachers: Teachers = Teachers(),  # noqa: B008 (immutable)
    ) -> None:
        self.model = model.to(device).train()
        if config.speed.channels_last:
            # The stub of Module.to lacks this overload.
            self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.average = copy.deepcopy(self.model).eval().requires_grad_(False)
        if device.type == "cpu" and config.speed.bf16:
            keep_wide_depthwise_float32(self.model)
        self.teachers = teachers
        for teacher in teachers:
            teacher.to(device).eval()
            if config.speed.channels_last:
                teacher.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.store = store
        self.config = config
        self.device = device
        self.report = report
        self.step = 0
        self.mode = "eager"
        self.world = dist.get_world_size() if dist.is_initialized() else 1
        self.rank = dist.get_rank() if dist.is_initialized() else 0

        if config.optimizer.batch_size % teachers.folds:
            raise ConfigError(
                f"batch_size: must be a multiple of {teachers.folds}, the teachers' folds, "
                f"got {config.optimizer.batch_size}"
            )
        self._counts = view_counts(config)
        strides = sorted({int(stride) for stride in model.anchor_strides.tolist()})
        self.levels = make_levels(strides, config.assignment.level_sizes, CANVAS_SIZE)
        self._parameters = [p for p in self.model.parameters() if p.requires_grad]
        self._learned = [
            value for value in self.model.state_dict(keep_vars=True).values() if value.is_floating_point()
        ]
        self._averaged = [
            value for value in self.average.state_dict(keep_vars=True).values() if value.is_floating_point()
        ]
        self._rate = torch.zeros((), device=device)
        self._ema_weight = torch.zeros((), device=device)
        self._mosaic_on = torch.ones((), device=device)
        # Sums since the last report: total, classification, box and distillation loss, positives, steps.
        self._sums = torch.zeros(6, device=device)
        self.optimizer = self._make_optimizer()
        self._views: Callable[[Draws], Views] = self._make_views
        self._net: Callable[[Tensor], tuple[Tensor, Tensor]] = self.model
        self._teach: Callable[[Tensor], Taught] = self._ask_teachers
        self._losses: Callable[..., Losses] = self._forward_loss
        self._graph: Any = None

    # The step

    def run(self, progress: float) -> None:
        """Does one step, whose scalars follow from `progress` (0 to 1). Does not wait for the device."""
        rate = learning_rate(progress, self.config.optimizer)
        self._ema_weight.fill_(ema_weight(self.step, self.config.average))
        self._mosaic_on.fill_(mosaic_on(progress, self.config.views))
        self._rate.fill_(rate)
        if self._graph is not None:
            self._graph.replay()
        else:
            self._body()
        self.step += 1

    def draw_views(self) -> Views:
        """Draws the views of one batch."""
        return self._views(draw(self._counts, self._mosaic_on, self.device))

    def recalibrate(self) -> None:
        """Measures the batch-norm statistics of the weight average anew, on whole photographs.

        The average of many nets' statistics is not the statistics of the average net (Izmailov et al. 2018,
        arXiv:1803.05407): with a high rate and a long average that cost several points of precision. And
        whole photographs are what the detector will see, augmented views are not.
        """
        config = plain_views(self.config)
        counts, no_mosaics = view_counts(config), torch.zeros((), device=self.device)
        generator = torch.Generator(self.device).manual_seed(config.seed)  # training draws go on as ever
        batches = -(-config.average.recalibration_views // config.optimizer.batch_size)
        draws = (draw(counts, no_mosaics, self.device, generator) for _ in range(batches))
        if batches:
            views = (make_views(self.store, each, counts, config) for each in draws)
            update_bn((self._laid_out(each.images) for each in views), self.average)

    def ask_teachers(self, images: Tensor) -> Taught | None:
        """What the teachers predict for images [B, 1, 256, 256]; None if there are none."""
        return self._teach(images) if self.teachers else None

    def read_sums(self) -> dict[str, float]:
        """Returns means since the last call (waits for the device): loss, classification, box, distillation,
        positives."""
        total, classification, box, distillation, positives, steps = self._sums.tolist()
        self._sums.zero_()
        steps = max(steps, 1.0)
        return {
            "loss": total / steps,
            "classification": classification / steps,
            "box": box / steps,
            "distillation": distillation / steps,
            "positives": positives / steps,
        }

    def _body(self) -> None:
        views = self.draw_views()
        self.optimizer.zero_grad(set_to_none=True)
        losses = self._losses(*views, self.ask_teachers(views.images))
        losses.total.backward()  # type: ignore[no-untyped-call]
        if self.world > 1:
            self._average_gradients(losses.quality)
        if self.config.optimizer.gradient_clip > 0:
            torch.nn.utils.clip_grad_norm_(self._parameters, self.config.optimizer.gradient_clip)
        self.optimizer.step()
        self._update_average()
        one = torch.ones_like(losses.positives)
        self._sums += torch.stack(
            [
                losses.total.detach(),
                losses.classification,
                losses.box,
                losses.distillation,
                losses.positives,
                one,
            ]
        )

    def _make_views(self, draws: Draws) -> Views:
        return make_views(self.store, draws, self._counts, self.config)

    def _ask_teachers(self, images: Tensor) -> Taught:
        with self._autocast():
            return teach(self.teachers.whole, self.teachers.sets, self._laid_out(images))

    def _forward_loss(
        self, images: Tensor, targets: Tensor, ignored: Tensor, taught: Taught | None = None
    ) -> Losses:
        with self._autocast():
            boxes, logits = self._net(self._laid_out(images))
        predictions = (boxes.float(), logits.float())
        return detection_loss(*predictions, targets, ignored, self.levels, self.config, taught)

    def _laid_out(self, images: Tensor) -> Tensor:
        return (
            images.contiguous(memory_format=torch.channels_last)
            if self.config.speed.channels_last
            else images
        )

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.speed.bf16)

    @torch.no_grad()
    def _update_average(self) -> None:
        """average += weight · (model - average), batch norm's statistics included."""
        difference = torch._foreach_sub(self._learned, self._averaged)
        torch._foreach_mul_(difference, self._ema_weight)
        torch._foreach_add_(self._averaged, difference)

    def _average_gradients(self, quality: Tensor) -> None:
        """One all-reduce for all gradients: a small net has many small ones.

        A process's gradient was divided by its sum of qualities. Here that is undone and the sum over all
        processes takes its place, so that the result is the gradient of one loss over all their views. (With
        `small_box_boost` or teachers there are other divisors too, and this holds about.)
        """
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients]) * quality.clamp(min=1)
        flat = torch.cat([flat, quality[None]])
        dist.all_reduce(flat)
        flat = flat[:-1] / flat[-1].clamp(min=1)
        parts = torch.split(flat, [gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def _make_optimizer(self) -> torch.optim.AdamW:
        decay = [p for p in self._parameters if p.ndim > 1]
        plain = [p for p in self._parameters if p.ndim <= 1]
        groups = [
            {"params": decay, "weight_decay": self.config.optimizer.weight_decay},
            {"params": plain, "weight_decay": 0.0},
        ]
        optimizer = torch.optim.AdamW(groups, lr=self._rate, fused=True)
        self._share_rate(optimizer)
        return optimizer

    def _share_rate(self, optimizer: torch.optim.AdamW) -> None:
        """Makes the optimiser read the one tensor that a captured step can be told a new rate through."""
        for group in optimizer.param_groups:
            group["lr"] = self._rate
            # A checkpoint may come from another device or configuration.
            group["capturable"] = self.device.type == "cuda" and self.config.speed.cuda_graph

    # Speed

    def prepare(self, progress: float = 0.0) -> None:
        """Compiles and captures the step as the configuration asks, and does a few real steps on the way."""
        modes = []
        if self.config.speed.compile:
            modes += self._compile()
        if self.config.speed.cuda_graph and self.device.type == "cuda":
            modes += self._capture(progress)
        self.mode = " + ".join(modes) if modes else "eager"

    def _compile(self) -> list[str]:
        done = []
        generators = _random_state(self.device)  # trying things out must not change what a seed gives
        draws = draw(self._counts, self._mosaic_on, self.device)
        views = self._attempt("compiled views", self._make_views, lambda function: function(draws))
        if views is not None:
            self._views = views
            done.append("compiled views")
        batch = self._views(draws)
        if self.teachers:
            asked = self._attempt("compiled teachers", self._teach, lambda function: function(batch.images))
            if asked is not None:
                self._teach = asked
                done.append("compiled teachers")
        taught = self.ask_teachers(batch.images)

        def forward_backward(function: Callable[..., Losses]) -> None:
            function(*batch, taught).total.backward()  # type: ignore[no-untyped-call]

        # Batch norm's statistics must not be touched by trying things out.
        kept = copy.deepcopy(self.model.state_dict())
        losses = self._attempt("compiled net and loss", self._forward_loss, forward_backward)
        self.model.load_state_dict(kept)
        self.optimizer.zero_grad(set_to_none=True)
        if losses is not None:
            self._losses = losses
            _set_random_state(generators, self.device)
            return [*done, "compiled net and loss"]

        def forward_backward_net(function: Callable[[Tensor], tuple[Tensor, Tensor]]) -> None:
            with self._autocast():
                boxes, logits = function(batch.images)
            (boxes.mean() + logits.mean()).backward()  # type: ignore[no-untyped-call]

        net = self._attempt("compiled net", self._net, forward_backward_net)
        self.model.load_state_dict(kept)
        self.optimizer.zero_grad(set_to_none=True)
        if net is not None:
            self._net = net
            done.append("compiled net")
        _set_random_state(generators, self.device)
        return done

    def _attempt(
        self, name: str, function: Callable[..., Any], use: Callable[[Callable[..., Any]], Any]
    ) -> Callable[..., Any] | None:
        """Compiles `function` and uses it once. Returns None, with the reason printed, if that fails."""
        start = time.monotonic()
        try:
            compiled: Callable[..., Any] = torch.compile(function, dynamic=False)
            use(compiled)
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
        except Exception as error:  # the compiler may fail in any way; training goes on without it
            self.report(f"{name}: not possible, going on without: {_reason(error)}")
            torch._dynamo.reset()
            return None
        self.report(f"{name}: ready after {time.monotonic() - start:.1f} s")
        return compiled

    def _capture(self, progress: float) -> list[str]:
        start = time.monotonic()
        stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream), warnings.catch_warnings():
            # A hint that a capturable optimiser is slower uncaptured; the capture follows.
            warnings.filterwarnings("ignore", "This instance was constructed with capturable=True")
            for _ in range(WARMUP_STEPS):
                self.run(progress)
        torch.cuda.current_stream(self.device).wait_stream(stream)
        torch.cuda.synchronize(self.device)
        graph = torch.cuda.CUDAGraph()
        try:
            # A failed capture leaves the stream of torch.cuda.graph current; the outer context takes it back.
            with torch.cuda.stream(torch.cuda.current_stream(self.device)), torch.cuda.graph(graph):
                self._body()
        except Exception as error:  # capture fails on any hidden synchronisation; training goes on without
            self.report(
                f"CUDA graph: not possible, going on without: {type(error).__name__}: {str(error)[:600]}"
            )
            torch.cuda.synchronize(self.device)
            _end_capture_of_random_numbers()
            self.optimizer.zero_grad(set_to_none=True)
            return []
        self._graph = graph
        self.report(f"CUDA graph: captured after {time.monotonic() - start:.1f} s")
        return ["CUDA graph"]

    # Saving

    def is_finite(self) -> bool:
        """Whether every weight is a finite number (waits for the device)."""
        return bool(torch.stack(torch._foreach_norm(self._learned)).isfinite().all())

    def state(self) -> dict[str, Any]:
        """Everything that the next step depends on. All processes must call it: each one's random numbers
        are part of it."""
        generators = [_random_state(self.device)] * self.world
        if self.world > 1:
            dist.all_gather_object(generators, generators[0])
        return {
            "model": self.model.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "generators": generators,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Takes up what `state` returned; call it before `prepare`."""
        self.model.load_state_dict(state["model"])
        self.average.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        self._share_rate(self.optimizer)  # loading replaced it
        self.step = int(state["step"])
        generators = state["generators"]
        if self.rank < len(generators):
            _set_random_state(generators[self.rank], self.device)
        else:  # more processes than before: the new ones draw views of their own
            torch.manual_seed(self.config.seed + 1 + self.rank + self.step)


def keep_wide_depthwise_float32(model: torch.nn.Module) -> None:
    """Takes depthwise convolutions wider than 3x3 out of CPU autocast.

    oneDNN has no fast bfloat16 gradient for them: with 64 channels, 5x5, stride 2, a batch of 64 took 40 ms,
    against 1.7 ms in float32.
    """
    for module in model.modules():
        if isinstance(module, torch.nn.Conv2d) and module.groups > 1 and module.kernel_size[0] > 3:
            module.forward = _in_float32(module)  # type: ignore[assignment, method-assign]


def _in_float32(conv: torch.nn.Conv2d) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            return torch.nn.Conv2d.forward(conv, x.float()).to(x.dtype)

    return forward


def _random_state(device: torch.device) -> dict[str, Tensor]:
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def _set_random_state(state: dict[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)


def _end_capture_of_random_numbers() -> None:
    """After a failed capture, torch 2.11 takes the generator for captured still and refuses every later draw.
    A copy of its state is not captured."""
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    generator.graphsafe_set_state(generator.clone_state())


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:800]}"
