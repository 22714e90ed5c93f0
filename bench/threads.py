"""The number of CPU threads that torch computes with."""

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def cpu_threads(count: int) -> Iterator[None]:
    """Uses `count` threads inside the block; 0 leaves PyTorch's choice."""
    usual = torch.get_num_threads()
    if count:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(usual)
