"""The group of processes that train a detector together, as torchrun starts them.

A single process is a group of one. No other file of training uses `torch.distributed`.
"""

from __future__ import annotations

import os
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

Value = TypeVar("Value")


def join(device: torch.device) -> torch.device:
    """Join the group that torchrun announces, if any. Return the device of this process."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return device
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    # Gradients travel between devices (NCCL); `agree` and `gather` between hosts (gloo).
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    return device


def leave() -> None:
    """Wait for all processes and leave the group, if this process is in one."""
    if dist.is_initialized():
        dist.barrier()  # no process closes its connections while another one still uses them
        dist.destroy_process_group()


def rank() -> int:
    """Return the number of this process, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def size() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if dist.is_initialized() else 1


def is_first() -> bool:
    """Return whether this process is the one that reports, evaluates and writes."""
    return rank() == 0


def agree(progress: float, save: bool) -> tuple[float, bool]:
    """Return the first process's progress and whether to save, so that all stop and save at the same step.

    The values travel between the hosts (gloo), so that no step waits for the device.
    """
    if not dist.is_initialized():
        return progress, save
    shared = torch.tensor([progress, float(save)], dtype=torch.float64)
    dist.broadcast(shared, 0)
    return float(shared[0]), bool(shared[1])


def add_up(values: Tensor) -> None:
    """Replace values by their sum over all processes."""
    dist.all_reduce(values)


def gather(value: Value) -> list[Value]:
    """Return the values of all processes, by rank."""
    values = [value] * size()
    if size() > 1:
        dist.all_gather_object(values, value)
    return values
