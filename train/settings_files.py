"""Read settings from files and from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lensbox.common.errors import system_reason
from lensbox.train.cli import TrainArguments
from lensbox.train.errors import ConfigError

CONFIG_FILE = "config.json"  # in the folder of a run


def config_from_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML (or JSON) file.

    Raises:
        ConfigError: the file cannot be read, or holds anything else.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")  # Windows begins files with a mark
        values = json.loads(text) if path.suffix == ".json" else _parse_yaml(text)
    except OSError as error:
        raise ConfigError(f"configuration file {path} cannot be read: {system_reason(error)}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"configuration file {path} cannot be read: {error}") from error
    except ValueError as error:
        raise ConfigError(f"configuration file {path} must hold {_format(path)}: {error}") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: a configuration must be a mapping of keys, got {type(values).__name__}")
    return values


def parse_assignment(text: str) -> tuple[str, Any]:
    """Split `key=value` of `--set`; the value is read as JSON if it is JSON, else as text."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ConfigError(f"--set takes key=value, got {text!r}")
    try:
        return key, json.loads(value)
    except json.JSONDecodeError:
        return key, value


def _format(path: Path) -> str:
    return "JSON" if path.suffix == ".json" else "YAML"


def _parse_yaml(text: str) -> Any:
    import yaml  # optional: only a YAML configuration needs it

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def given_settings(arguments: TrainArguments) -> dict[str, Any]:
    """Return the settings of files and `--set`; a resumed run lays them over its earlier settings."""
    values: dict[str, Any] = {}
    earlier = arguments.output / CONFIG_FILE
    if arguments.resume and earlier.is_file():
        values.update(config_from_yaml(earlier))
    for path in arguments.config:
        values.update(config_from_yaml(path))
    values.update(parse_assignment(text) for text in arguments.sets)
    return values
