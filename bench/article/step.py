"""One training step in the article's phases, and the samplers that time it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic

from torch import Tensor

from lensbox.bench.article.rows import Loss
from lensbox.bench.article.subject import Subject
from lensbox.bench.article.targets import Layout, Targets
from lensbox.bench.timing import MICROSECONDS, Clock

COPY, FORWARD, LOSS, BACKWARD, OPTIMIZER = "copy data", "forward", "calc loss", "backward", "optimizer"
PHASES = (COPY, FORWARD, LOSS, BACKWARD, OPTIMIZER)


class TrainingStep(Generic[Targets]):
    """A step that can be done phase by phase. Without a gradient it ends with the loss.

    Args:
        layout: of the boxes that `loss` takes.
        has_gradient: whether the loss has one.
    """

    def __init__(
        self, subject: Subject, layout: Layout[Targets], loss: Loss[Targets], has_gradient: bool
    ) -> None:
        self._subject, self._layout, self._calculate = subject, layout, loss
        self._has_gradient = has_gradient
        host = layout.collate(subject.boxes)
        self._host = layout.pin(host) if subject.device.type == "cuda" else host
        self._images: Tensor | None = None
        self._targets: Targets | None = None
        self._pred: Tensor | None = None
        self._loss: Tensor | None = None

    @property
    def phases(self) -> Sequence[tuple[str, Callable[[], None]]]:
        """In order, with their names."""
        without_gradient = [(COPY, self._copy), (FORWARD, self._forward), (LOSS, self._calc_loss)]
        if not self._has_gradient:
            return without_gradient
        return [*without_gradient, (BACKWARD, self._backward), (OPTIMIZER, self._subject.optimizer.step)]

    def run(self) -> None:
        """All phases, without a wait between them."""
        for _, phase in self.phases:
            phase()
        self.forget()

    def forget(self) -> None:
        """Lets go of the batch, and of what autograd kept of it."""
        self._images = self._targets = self._pred = self._loss = None

    def _copy(self) -> None:
        device = self._subject.device
        self._images = self._subject.images.to(device, non_blocking=True)
        self._targets = self._layout.move(self._host, device)

    def _forward(self) -> None:
        assert self._images is not None
        self._pred = self._subject.predict(self._images)

    def _calc_loss(self) -> None:
        assert self._pred is not None
        assert self._targets is not None
        pred = self._pred if self._has_gradient else self._pred.detach()
        self._loss = self._calculate(pred, self._targets)

    def _backward(self) -> None:
        assert self._loss is not None
        self._subject.optimizer.zero_grad(set_to_none=True)
        self._loss.backward()


class PhaseSampler:
    """Times each phase up to its result: the device is waited for before the first and after each.

    Called, it returns the microseconds of the step and adds those of its phases to `samples`, by name.
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
