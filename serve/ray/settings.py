"""Arguments of `serve run lensbox.serve.ray.app:app NAME=VALUE...` and of Ray's configuration files."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from lensbox.common.fields import first_reason
from lensbox.serve.settings import Settings, options

# Under Ray the proxies listen, and each replica is one process with one engine, which serves one file.
_PROCESSES = "frontends host port log_format log_level tls_certificate tls_key"
_MODELS = "admin_key_file models"
WITHOUT_MEANING = frozenset([*_PROCESSES.split(), *_MODELS.split()])


def read_settings(arguments: Mapping[str, Any]) -> Settings:
    """Return the settings of a replica. arguments: options of `Settings`, also as text; `ops` with commas.

    Paths become absolute, because each replica starts in a different folder. Raise ValueError, which names
    the argument, if it is unknown, malformed or without meaning under Ray.
    """
    names = options().keys() - WITHOUT_MEANING
    for name in arguments:
        if name not in names:
            raise ValueError(f"an argument must be one of {', '.join(sorted(names))}, got {name!r}")
    values = dict(arguments)
    if isinstance(values.get("ops"), str):
        values["ops"] = values["ops"].split(",")
    try:
        settings = Settings(**values)
    except ValidationError as error:
        raise ValueError(first_reason(error)) from error
    paths: dict[str, Any] = {
        name: path.absolute() for name, path in vars(settings).items() if isinstance(path, Path)
    }
    return replace(settings, ops=tuple(path.absolute() for path in settings.ops), **paths)
