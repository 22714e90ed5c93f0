"""Run the groups of `lensbox bench ops`."""

import gc
from collections.abc import Sequence
from pkgutil import resolve_name

import torch

from lensbox.bench import GROUPS
from lensbox.bench.measure import WrongAnswerError, describe_machine, run_case, say
from lensbox.common.machine import keep_freed_memory
from lensbox.runtime.device import choose_device

_SECONDS, _QUICK_SECONDS = 2.0, 0.5  # for all samples of a way


def run_ops(device: str, quick: bool, only: Sequence[str]) -> None:
    """Run the groups `only`, all by default. Print each table when it is complete.

    At the end, raise WrongAnswerError if an answer of Lensbox was wrong.
    """
    where, wrong = choose_device(device), []
    keep_freed_memory()
    torch.set_num_threads(1)
    say(describe_machine("opencv-python-headless"))
    for group in only or GROUPS:
        for case in resolve_name(GROUPS[group])(where, quick):
            table, is_right = run_case(case, _QUICK_SECONDS if quick else _SECONDS)
            say(table)
            wrong += [] if is_right else [case.title]
            # Captured graphs and the guards of compiled code would slow the next case down.
            torch.compiler.reset()
            gc.collect()
            torch.cuda.empty_cache()  # does nothing without CUDA
    if wrong:
        raise WrongAnswerError(f"Lensbox's own answers were wrong: {'; '.join(wrong)}")
