"""The state of the generators that views are drawn with."""

from __future__ import annotations

import torch
from torch import Tensor


def random_state(device: torch.device) -> dict[str, Tensor]:
    """The states of the default generators, of the CPU and of `device`."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_random_state(state: dict[str, Tensor], device: torch.device) -> None:
    """Takes up what `random_state` returned."""
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)


def end_capture_of_random_numbers() -> None:
    """After a failed capture, torch 2.11 takes the generator for captured still and refuses every later draw.
    A copy of its state is not captured."""
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    generator.graphsafe_set_state(generator.clone_state())
