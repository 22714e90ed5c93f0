"""One training step of the article's net, in its phases, and the samplers that time it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

import torch
from torch import Tensor

from lensbox.bench.article.approaches import (
    BACKWARD,
    COPY,
    FORWARD,
    LOSS,
    OPTIMIZER,
    SLOTS,
    Layout,
    Loss,
    Targets,
)
from lensbox.bench.timing import MICROSECONDS, Clock, nothing
from lensbox.model import ArticleNet
from lensbox.train.article import FakeDataset


@dataclass(frozen=True)
class Scale:
    """The size of the experiment.

    channels, hidden: of ArticleNet. autocast: whether it computes in bfloat16. compiled: by torch.compile.
    """

    batch: int
    channels: tuple[int, int, int, int]
    hidden: int
    autocast: bool
    compiled: bool

    def __str__(self) -> str:
        how = "torch.compile" if self.compiled else "eager"
        return (
            f"batch {self.batch}, {SLOTS} slots a sample; channels {', '.join(map(str, self.channels))}, "
            f"then Linear({self.channels[-1] * 256}, {self.hidden}); {how}, "
            f"{'bf16 autocast' if self.autocast else 'float32'}"
        )


ARTICLE = Scale(1024, (32, 64, 128, 256), 16384, autocast=True, compiled=True)
FOR_A_CPU = Scale(32, (2, 4, 8, 8), 64, autocast=False, compiled=False)


@dataclass(frozen=True)
class Experiment:
    """The net, its optimizer and one batch of random data, which all approaches share.

    predict: images `[B, 1, 256, 256]` on the device to boxes `[B, SLOTS, 4]`. optimizer: its rate is 0, so
    that every step sees the same weights. images: uint8 on the host, pinned if there is a GPU to copy to.
    boxes: uint8 `[n, 4]` of each sample, on the host.
    """

    device: torch.device
    scale: Scale
    predict: Callable[[Tensor], Tensor]
    optimizer: torch.optim.Optimizer
    images: Tensor
    boxes: list[Tensor]

    @property
    def synchronize(self) -> Callable[[], None]:
        """Return a function that waits for the device."""
        return torch.cuda.synchronize if self.device.type == "cuda" else nothing


def make_experiment(device: torch.device, scale: Scale) -> Experiment:
    """Build the net and the batch."""
    torch.manual_seed(0)
    with device:
        net = ArticleNet(scale.channels, scale.hidden, SLOTS)
    net.train()
    call = torch.compile(net, dynamic=False) if scale.compiled else net

    def predict(images: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=scale.autocast):
            boxes: Tensor = call(images)
        return boxes

    data = FakeDataset(scale.batch, SLOTS, seed=0)
    images, boxes = zip(*(data[index] for index in range(scale.batch)), strict=True)
    stacked = torch.stack(images)
    return Experiment(
        device,
        scale,
        predict,
        torch.optim.SGD(net.parameters(), lr=0.0, fused=True),
        stacked.pin_memory() if device.type == "cuda" else stacked,
        [of_sample.to(torch.uint8) for of_sample in boxes],
    )


class TrainingStep(Generic[Targets]):
    """A step that can be done phase by phase. Without a gradient it ends with the loss.

    layout: of the boxes that `loss` takes. has_gradient: whether the loss has one.
    """

    def __init__(
        self, experiment: Experiment, layout: Layout[Targets], loss: Loss[Targets], has_gradient: bool
    ) -> None:
        self._experiment, self._layout, self._calculate = experiment, layout, loss
        self._has_gradient = has_gradient
        host = layout.collate(experiment.boxes)
        self._host = layout.pin(host) if experiment.device.type == "cuda" else host
        self._images: Tensor | None = None
        self._targets: Targets | None = None
        self._pred: Tensor | None = None
        self._loss: Tensor | None = None

    @property
    def phases(self) -> Sequence[tuple[str, Callable[[], None]]]:
        """Return names and functions, in order."""
        forward = [(COPY, self._copy), (FORWARD, self._forward), (LOSS, self._calc_loss)]
        if not self._has_gradient:
            return forward
        return [*forward, (BACKWARD, self._backward), (OPTIMIZER, self._experiment.optimizer.step)]

    def run(self) -> None:
        """Run all phases, without a wait between them."""
        for _, phase in self.phases:
            phase()
        self.forget()

    def forget(self) -> None:
        """Free the batch, and what autograd kept of it."""
        self._images = self._targets = self._pred = self._loss = None

    def _copy(self) -> None:
        device = self._experiment.device
        self._images = self._experiment.images.to(device, non_blocking=True)
        self._targets = self._layout.move(self._host, device)

    def _forward(self) -> None:
        assert self._images is not None
        self._pred = self._experiment.predict(self._images)

    def _calc_loss(self) -> None:
        assert self._pred is not None
        assert self._targets is not None
        pred = self._pred if self._has_gradient else self._pred.detach()
        self._loss = self._calculate(pred, self._targets)

    def _backward(self) -> None:
        assert self._loss is not None
        self._experiment.optimizer.zero_grad(set_to_none=True)
        self._loss.backward()


class PhaseSampler:
    """Time each phase up to its result: wait for the device before the first phase and after each.

    A call returns the microseconds of the step and adds the times of its phases to `samples`, by name.
    """

    def __init__(self, step: TrainingStep[Targets], synchronize: Callable[[], None], clock: Clock) -> None:
        self._step, self._synchronize, self._clock = step, synchronize, clock
        self.samples: dict[str, list[float]] = {name: [] for name, _ in step.phases}

    def __call__(self) -> float:
        self._synchronize()
        start = last = self._clock()
        for name, phase in self._step.phases:
            phase()
            self._synchronize()
            now = self._clock()
            self.samples[name].append((now - last) * MICROSECONDS)
            last = now
        self._step.forget()
        return (last - start) * MICROSECONDS
