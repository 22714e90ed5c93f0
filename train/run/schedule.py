"""How learning rate, weight average and views change over a run; progress goes from 0 to 1."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lensbox.train.config.settings import AverageSettings, OptimizerSettings, ViewSettings


@dataclass(frozen=True)
class Clock:
    """Turns steps and seconds into progress, whichever is further.

    Attributes:
        steps: optimiser steps of the whole run.
        seconds: end of the run on the clock that `progress` is given, or None for no limit.
        start_step, start_seconds, start_progress: where this process took the run up. A run that time had
            brought further than its steps spreads the rest over the steps that are left.
    """

    steps: int
    seconds: float | None = None
    start_step: int = 0
    start_seconds: float = 0.0
    start_progress: float = 0.0

    def progress(self, step: int, seconds: float) -> float:
        share = step / self.steps
        if self.start_progress > self.start_step / self.steps:
            left = max(self.steps - self.start_step, 1)
            share = self.start_progress + (1 - self.start_progress) * (step - self.start_step) / left
        if self.seconds is not None:
            span = max(self.seconds - self.start_seconds, 1e-6)
            passed = max(seconds - self.start_seconds, 0.0) / span
            share = max(share, self.start_progress + (1 - self.start_progress) * passed)
        return min(share, 1.0)


def learning_rate(progress: float, settings: OptimizerSettings) -> float:
    """Linear warm-up, then a cosine down to the final rate."""
    if progress < settings.warmup_progress:
        return settings.learning_rate * max(progress / settings.warmup_progress, 1e-3)
    share = (progress - settings.warmup_progress) / (1 - settings.warmup_progress)
    cosine = 0.5 * (1 + math.cos(math.pi * share))
    return settings.final_learning_rate + (settings.learning_rate - settings.final_learning_rate) * cosine


def ema_weight(step: int, settings: AverageSettings) -> float:
    """Weight of the newest parameters in the average: large at first, so that it forgets the start."""
    return 1 - min(settings.ema_decay, (1 + step) / (settings.ema_warmup + step))


def mosaic_on(progress: float, settings: ViewSettings) -> float:
    """1 while mosaics are drawn, 0 in the last part of the run."""
    return 1.0 if progress < 1 - settings.plain_progress else 0.0
