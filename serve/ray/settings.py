"""Arguments of `serve run lensbox.serve.ray.app:app NAME=VALUE...` and of Ray's configuration files."""

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from lensbox.serve.settings import Settings

# Under Ray the proxies listen, and each replica is one process with one engine.
WITHOUT_MEANING = frozenset(
    {
        "busy_poll",
        "devices",
        "frontends",
        "keep_alive_timeout",
        "max_connections",
        "shutdown_delay",
        "tls_certificate",
        "tls_key",
    }
)


def read_settings(arguments: Mapping[str, Any]) -> Settings:
    """Return the settings of a replica. arguments: fields of `Settings`, also as text; `ops` with commas.

    Paths become absolute, because each replica starts in a different folder. Raises ValueError, which names
    the argument, if it is unknown, malformed or without meaning under Ray.
    """
    names = {field.name for field in fields(Settings)} - WITHOUT_MEANING
    for name in arguments:
        if name not in names:
            raise ValueError(f"an argument must be one of {', '.join(sorted(names))}, got {name!r}")
    values = dict(arguments)
    if isinstance(values.get("ops"), str):
        values["ops"] = values["ops"].split(",")
    settings = TypeAdapter(Settings).validate_python(values)
    paths: dict[str, Any] = {
        name: path.absolute() for name, path in vars(settings).items() if isinstance(path, Path)
    }
    return replace(settings, frontends=0, ops=tuple(path.absolute() for path in settings.ops), **paths)
