"""Traces of torch.profiler, a folder a row, as TensorBoard's plugin and Perfetto open them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule, tensorboard_trace_handler

from lensbox.bench.article.step import TrainingStep
from lensbox.bench.article.targets import Targets
from lensbox.bench.profiler_log import silence_profiler


def trace_folder(folder: Path, row: str) -> Path:
    """Where the trace of a row lies: each is a run of its own to TensorBoard."""
    return folder / re.sub(r"[^a-z0-9.]+", "_", row.lower()).strip("_")


def write_trace(folder: Path, step: TrainingStep[Targets], synchronize: Callable[[], None]) -> None:
    """Traces one step, its phases named, with a wait after each; another goes before, for the profiler to
    start up. Writes `folder`/lensbox.<time>.pt.trace.json.gz."""
    silence_profiler()
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    with profile(
        activities=activities,
        schedule=schedule(wait=0, warmup=1, active=1, repeat=1),
        on_trace_ready=tensorboard_trace_handler(str(folder), worker_name="lensbox", use_gzip=True),
    ) as profiler:
        for _ in range(2):
            for name, phase in step.phases:
                with record_function(name):
                    phase()
                    synchronize()
            step.forget()
            profiler.step()
