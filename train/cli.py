"""The commands `lensbox train` and `lensbox evaluate`, with their options made of the classes in `settings`.

Bodies import what they need when they run: torch takes seconds to load, and `--help` must not wait for it.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Callable
from typing import Any

import click
from click.core import ParameterSource
from pydantic import TypeAdapter

from lensbox.cli.command import FILE, Command, require_at_most_one
from lensbox.train.settings import EvaluateInputs, TrainConfig, TrainInputs


def json_value(text: str) -> Any:
    """Return the value of JSON text, for an option's `type`."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"must be JSON, got {text!r}") from error


_TYPES: dict[str, Any] = {
    "boolean": bool,
    "integer": int,
    "number": float,
    "object": json_value,
    "path": FILE,
    "string": str,
}


def options_of(inputs: type) -> Callable[[Any], Any]:
    """Return a decorator that gives a command an option for each field of a pydantic dataclass."""
    schema = TypeAdapter(inputs).json_schema()

    def decorate(command: Any) -> Any:
        for name, field in reversed(schema["properties"].items()):
            command = _option(name, field, name in schema.get("required", ()))(command)
        return command

    return decorate


def _option(name: str, field: dict[str, Any], required: bool) -> Callable[[Any], Any]:
    """Return the option of a field, by its part of the JSON schema."""
    kind = next(one for one in field.get("anyOf", [field]) if one["type"] != "null")
    is_many = kind["type"] == "array"
    kind = kind["items"] if is_many else kind
    flag = f"--{name.replace('_', '-')}"
    return click.option(
        f"{flag}/--no-{flag[2:]}" if kind["type"] == "boolean" else flag,
        name,
        type=click.Choice(kind["enum"]) if "enum" in kind else _TYPES[kind.get("format", kind["type"])],
        metavar="JSON" if kind["type"] == "object" else "PATH..." if is_many else None,
        help=field["description"],
        default=field.get("default"),
        required=required,
        multiple=is_many,
    )


@click.command(cls=Command)
@options_of(TrainInputs)
@options_of(TrainConfig)
@click.pass_obj
def train(words: list[str], /, **options: Any) -> None:
    """Train a face detector on photographs labelled as in WIDER FACE, COCO or YOLO."""
    require_at_most_one(options, "resume", "weights")
    from lensbox.train.train import run_train

    source = click.get_current_context().get_parameter_source
    settings = {field.name: options.pop(field.name) for field in dataclasses.fields(TrainConfig)}
    # The others are defaults, which files override.
    given = {name: value for name, value in settings.items() if source(name) is not ParameterSource.DEFAULT}
    run_train(TrainInputs(**options), given, shlex.join(["lensbox", *words]))


@click.command(cls=Command)
@options_of(EvaluateInputs)
def evaluate(**options: Any) -> None:
    """Measure average precision at IoU 0.5 by box height, and by class where the detector has some.

    If --data is one COCO file, --coco adds the summary of pycocotools for that file. --detections prints the
    summary for the detections in FILE.
    """
    require_at_most_one(options, "detections", "weights", "artifact")
    from lensbox.train.evaluation.evaluate import run_evaluate

    run_evaluate(EvaluateInputs(**options))
