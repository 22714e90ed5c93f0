"""Everything that the next step depends on, for a checkpoint."""

from __future__ import annotations

from typing import Any

import torch

from lensbox.train.run import process_group
from lensbox.train.run.optimizer import load_moments
from lensbox.train.run.random_state import random_state, set_random_state
from lensbox.train.run.step import TrainStep


def step_state(step: TrainStep) -> dict[str, Any]:
    """Everything that the next step depends on. All processes must call it: each one's random numbers are
    part of it."""
    return {
        "model": step.model.state_dict(),
        "average": step.average.detector.state_dict(),
        "optimizer": step.optimizer.state_dict(),
        "step": step.step,
        "generators": process_group.gather(random_state(step.device)),
    }


def load_step_state(step: TrainStep, state: dict[str, Any]) -> None:
    """Takes up what `step_state` returned; call it before the step is compiled and captured."""
    step.model.load_state_dict(state["model"])
    step.average.detector.load_state_dict(state["average"])
    load_moments(step.optimizer, state["optimizer"])
    step.share_rate()  # loading replaced it
    step.step = int(state["step"])
    generators, rank = state["generators"], process_group.rank()
    if rank < len(generators):
        set_random_state(generators[rank], step.device)
    else:  # more processes than before: the new ones draw views of their own
        torch.manual_seed(step.config.seed + 1 + rank + step.step)
