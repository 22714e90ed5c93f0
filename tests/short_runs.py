"""A training run of a few steps on the CPU, for all tests that need one."""

import dataclasses
import time
from pathlib import Path

import torch

from lensbox.train.config.settings import TrainConfig
from lensbox.train.run.run import RunOptions

CPU = torch.device("cpu")

SHORT_RUN = TrainConfig().replace(
    model="small",
    steps=3,
    batch_size=4,
    compile=False,
    bf16=False,
    max_targets=8,
    max_ignored=8,
    evaluations=0,
    recalibration_views=8,
)


def run_options(output: Path, **changes: object) -> RunOptions:
    base = RunOptions(output, CPU, None, time.monotonic(), False, {"command": "test"})
    return dataclasses.replace(base, **changes)
