"""One run of `lensbox bench ops`."""

import gc
from collections.abc import Callable, Sequence

import torch

from lensbox.bench.measure import describe_machine, run_case
from lensbox.bench.ops.cases import GROUPS
from lensbox.common.machine import keep_freed_memory

_SECONDS, _QUICK_SECONDS = 2.0, 0.5  # for all samples of a way


def run_ops(
    device: torch.device, quick: bool, threads: int, groups: Sequence[str], say: Callable[[str], None]
) -> bool:
    """Run groups of cases, all by default. Print each table with `say` when it is complete.

    Return whether every answer of Lensbox was right.
    """
    keep_freed_memory()
    torch.set_num_threads(threads)
    packages = ("torchvision", "triton", "pillow", "opencv-python-headless")
    say(describe_machine(device.type, packages))
    is_good = True
    for group in groups or GROUPS:
        for case in GROUPS[group](device, quick):
            result = run_case(case, threads, _QUICK_SECONDS if quick else _SECONDS)
            say(result.table().markdown())
            is_good = is_good and not result.own_defect
            _release_memory()
    return is_good


def _release_memory() -> None:
    """Free captured graphs and compiled code, so that the guards of a case do not slow the next one down."""
    torch.compiler.reset()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
