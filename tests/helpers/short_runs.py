"""A training run of a few steps on the CPU, for all tests that need one."""

import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import DEFAULT, patch

import pytest
import torch

from lensbox.evaluation.data.labels import LabelledImage
from lensbox.evaluation.figures import Figures
from lensbox.model import DetectorConfig, FaceDetector
from lensbox.train.photographs import StoreTensors
from lensbox.train.run.origin import Origin
from lensbox.train.run.step import TrainStep
from lensbox.train.run.training import TrainingRun
from lensbox.train.settings import TrainConfig, TrainInputs

Options = dict[str, Any]

SHORT_RUN = TrainConfig().replace(
    model="small",
    steps=3,
    batch_size=4,
    compile=False,
    bf16=False,
    max_targets=8,
    max_ignored=8,
    evaluations=0,
    recalibration_views=4,
)
# Six steps, in which the weight average moves
SIX_STEPS = SHORT_RUN.replace(steps=6, ema_decay=0.9, ema_warmup=2.0)

# The same settings for the command line
TINY = shlex.split(
    "--model small --steps 3 --batch-size 3 --no-compile --no-bf16 --max-targets 8 --max-ignored 8 "
    "--workers 2 --recalibration-views 4"
)


def small_detector(seed: int | None = None) -> FaceDetector:
    """Return a small detector with random weights. seed: of the weights; None leaves the generator alone."""
    if seed is not None:
        torch.manual_seed(seed)
    return FaceDetector(DetectorConfig.named("small"))


def make_step(store: StoreTensors, config: TrainConfig = SIX_STEPS) -> TrainStep:
    return TrainStep(small_detector(), store, config)


def run_options(output: Path, **changes: Any) -> Options:
    """Return the arguments of `TrainingRun` behind the configuration. changes: of them, and of its inputs."""
    options = {"origin": Origin(), "command": "test", "started": time.monotonic()}
    options |= {name: changes.pop(name) for name in options if name in changes}
    return {"inputs": TrainInputs(data=(), output=output, **changes), **options}


def train(
    store: StoreTensors, config: TrainConfig, options: Options, validation: Sequence[LabelledImage] = ()
) -> Figures | None:
    return TrainingRun(store, config, **options).train(validation)


def interrupt(
    store: StoreTensors,
    config: TrainConfig,
    options: Options,
    after: int,
    validation: Sequence[LabelledImage] = (),
) -> None:
    """Train, with a checkpoint before every step, and cut the run short after `after` steps."""
    run = TrainingRun(store, config.replace(checkpoint_seconds=1e-9), **options)
    steps = [*after * [DEFAULT], KeyboardInterrupt]
    cut_short = patch.object(run.step, "run", wraps=run.step.run, side_effect=steps)
    with cut_short, pytest.raises(KeyboardInterrupt):
        run.train(validation)
