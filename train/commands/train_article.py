"""`lensbox train --dataset random --model article`: trains the article's toy, both ways."""

from __future__ import annotations

import dataclasses
import json
import platform
import time
from collections.abc import Mapping
from typing import Any

import torch

from lensbox.common.files import atomic_write, require_writable_folder
from lensbox.train.article.run import (
    HELD_OUT,
    OBJECTIVES,
    ArticleRun,
    Objective,
    Outcome,
    RunOptions,
)
from lensbox.train.article.settings import ArticleConfig, article_config
from lensbox.train.commands.arguments import TrainArguments
from lensbox.train.commands.choices import chosen_device
from lensbox.train.commands.given_settings import given_settings
from lensbox.train.errors import ConfigError
from lensbox.train.run import process_group
from lensbox.train.run.arithmetic import use_fast_kernels
from lensbox.train.run.checkpoint import set_aside
from lensbox.train.run.progress_bar import open_progress_bar
from lensbox.train.run.run import CHECKPOINT_FILE, CONFIG_FILE

FIGURES_FILE = "figures.json"
# Folders of `--output`.
FOLDERS: dict[Objective, str] = {"mean GIoU": "minimise_mean_giou", "1 - GIoU": "minimise_1_minus_giou"}
# Options that are about photographs or detectors, and what each is where it is not given.
_REFUSED: dict[str, Any] = {
    "data": (),
    "strict": False,
    "val": (),
    "time_limit": None,
    "weights": None,
    "teachers": (),
    "leave_out": None,
    "profile": False,
    "contact_sheet": None,
}


def run_train_article(arguments: TrainArguments) -> None:
    """Trains twice from the same net: minimising the mean GIoU, which the article's function returns as the
    loss, and minimising 1 - GIoU. Raises one of `lensbox.common.errors`, with its exit code, or OSError."""
    started = time.monotonic()
    _refuse(arguments)
    config = article_config(given_settings(arguments))
    if arguments.print_config:
        print(config.to_json())
        return
    device = chosen_device(arguments.device)
    if device.type == "cuda":
        use_fast_kernels()
    require_writable_folder("--output", arguments.output)
    folders = {objective: arguments.output / folder for objective, folder in FOLDERS.items()}
    if arguments.resume and not any((folder / CHECKPOINT_FILE).is_file() for folder in folders.values()):
        raise ConfigError(f"--resume: there must be a checkpoint in {arguments.output}, got none")
    if not arguments.resume:
        for folder in folders.values():
            set_aside(folder / CHECKPOINT_FILE)
    atomic_write(arguments.output / CONFIG_FILE, (config.to_json() + "\n").encode())
    outcomes: dict[Objective, Outcome] = {}
    for objective in OBJECTIVES:
        options = RunOptions(folders[objective], device, arguments.resume, arguments.tensorboard)
        with open_progress_bar() as bar:
            outcomes[objective] = ArticleRun(objective, config, options).train(bar)
    figures = {
        "mean_giou": {objective: outcome._asdict() for objective, outcome in outcomes.items()},
        "config": dataclasses.asdict(config),
        "command": arguments.command,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
    }
    path = arguments.output / FIGURES_FILE
    atomic_write(path, (json.dumps(figures, indent=2) + "\n").encode())
    print("\n".join(outcome_lines(outcomes, config)))
    print(f"wrote {path} after {time.monotonic() - started:.0f} s", flush=True)


def outcome_lines(outcomes: Mapping[Objective, Outcome], config: ArticleConfig) -> list[str]:
    """The table that shows which objective leads where."""
    lines = [
        f"mean GIoU of {HELD_OUT} samples that training did not see; {config.steps} steps of "
        f"{config.batch_size} samples",
        f"{'minimised':<12}{'before':>9}{'after':>9}",
    ]
    for objective, outcome in outcomes.items():
        verdict = "better" if outcome.after > outcome.before else "worse"
        lines.append(f"{objective:<12}{outcome.before:9.4f}{outcome.after:9.4f}  {verdict}")
    return lines


def _refuse(arguments: TrainArguments) -> None:
    for name, absent in _REFUSED.items():
        if getattr(arguments, name) != absent:
            option = "--" + {"teachers": "teacher"}.get(name, name).replace("_", "-")
            raise ConfigError(f"{option} must not be given with --dataset random")
    if process_group.announced() > 1:
        raise ConfigError(
            f"--dataset random trains in one process, got {process_group.announced()} from torchrun"
        )
