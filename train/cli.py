"""The command `lensbox train`, with its options made of the classes in `settings`.

The body imports what it needs when it runs: torch takes seconds to load, and `--help` must not wait for it.
"""

import dataclasses
import os
import shlex
from typing import Any

import click
from click.core import ParameterSource

from lensbox.cli.command import Command, options_of, require_at_most_one
from lensbox.train.settings import TrainConfig, TrainInputs


@click.command(cls=Command)
@options_of(TrainInputs)
@options_of(TrainConfig)
@click.pass_obj
def train(words: list[str], /, **options: Any) -> None:
    """Train a face detector on photographs labelled as in WIDER FACE, COCO or YOLO."""
    require_at_most_one(options, "resume", "weights")
    # OpenMP reads this when torch is imported: waiting threads that spin take the cores from other programs.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    from lensbox.train.train import run_train

    source = click.get_current_context().get_parameter_source
    settings = {field.name: options.pop(field.name) for field in dataclasses.fields(TrainConfig)}
    # The others are defaults, which files override.
    given = {name: value for name, value in settings.items() if source(name) is not ParameterSource.DEFAULT}
    run_train(TrainInputs(**options), given, shlex.join(["lensbox", *words]))
