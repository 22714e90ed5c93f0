"""The settings that the options of `lensbox train` name."""

from __future__ import annotations

from typing import Any

from lensbox.train.commands.arguments import TrainArguments
from lensbox.train.config.reading import config_from_yaml, parse_assignment
from lensbox.train.run.run import CONFIG_FILE


def given_settings(arguments: TrainArguments) -> dict[str, Any]:
    """What the files and `--set` say, for a resumed run laid over what it had, by the names of settings."""
    values: dict[str, Any] = {}
    earlier = arguments.output / CONFIG_FILE
    if arguments.resume and earlier.is_file():
        values.update(config_from_yaml(earlier))
    for path in arguments.config:
        values.update(config_from_yaml(path))
    values.update(parse_assignment(text) for text in arguments.sets)
    return values
