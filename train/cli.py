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
from pydantic import TypeAdapter

from lensbox.cli.command import FILE, Command, require_at_most_one
from lensbox.train.settings import EvaluateInputs, TrainConfig, TrainInputs


def json_value(text: str) -> Any:
    """Return the value of JSON text, for an option's `type`."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"must be JSON, got {text!r}") from error


_TYPES: dict[str, dict[str, Any]] = {
    "integer": {"type": int},
    "number": {"type": float},
    "object": {"type": json_value, "metavar": "JSON"},
    "string": {"type": str},
}


def options_of(inputs: type, *, overrides: bool = False) -> Callable[[Any], Any]:
    """Return a decorator that gives a command an option for each field of a pydantic dataclass.

    overrides: the option is None if it is not given, so that files can set the field.
    """
    schema = TypeAdapter(inputs).json_schema()

    def decorate(command: Any) -> Any:
        for name, field in reversed(schema["properties"].items()):
            command = _option(name, field, name in schema.get("required", ()), overrides)(command)
        return command

    return decorate


def _option(name: str, field: dict[str, Any], required: bool, overrides: bool) -> Callable[[Any], Any]:
    """Return the option of a field, by its part of the JSON schema."""
    kind = next(one for one in field.get("anyOf", [field]) if one["type"] != "null")
    is_many = kind["type"] == "array"
    kind = kind["items"] if is_many else kind
    flag, default = f"--{name.replace('_', '-')}", field.get("default")
    how: dict[str, Any] = {"help": field["description"], "default": default}
    if kind["type"] == "boolean":
        flag += f"/--no-{flag[2:]}" if overrides else ""
        how["is_flag"] = True
    elif kind.get("format") == "path":
        how |= {"type": FILE, "metavar": "PATH..." if is_many else "PATH"}
    elif "enum" in kind:
        how["type"] = click.Choice(kind["enum"])
    else:
        how |= _TYPES[kind["type"]]
    if is_many:
        how |= {"multiple": True, "default": default or ()}
    if required:
        how = {**how, "required": True, "default": None}
    if overrides:
        shown = f"{field['description']}  [default: {json.dumps({} if default is None else default)}]"
        how |= {"default": None, "help": shown}
    return click.option(flag, name, **how)


@click.command(cls=Command)
@options_of(TrainInputs)
@options_of(TrainConfig, overrides=True)
@click.pass_obj
def train(words: list[str], /, **options: Any) -> None:
    """Train a face detector on photographs labelled as in WIDER FACE, COCO or YOLO."""
    require_at_most_one(options, "resume", "weights")
    from lensbox.train.train import run_train

    given = {field.name: options.pop(field.name) for field in dataclasses.fields(TrainConfig)}
    settings = {name: value for name, value in given.items() if value is not None}
    command = shlex.join(["lensbox", *words])
    run_train(TrainInputs(**options), settings, command)


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
