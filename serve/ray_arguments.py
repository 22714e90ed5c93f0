"""Arguments of `serve run lensbox.serve.ray_app:app NAME=VALUE...` and of Ray's configuration files."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from lensbox.serve.observability.logs import FORMATS
from lensbox.serve.settings import Settings

DEFAULT_ARTIFACT = "artifacts/detector.pt"
# Under Ray the proxies listen, and each replica is one process with one engine.
_WITHOUT_MEANING = (
    "busy_poll",
    "devices",
    "frontends",
    "keep_alive_timeout",
    "max_connections",
    "shutdown_delay",
    "tls_certificate",
    "tls_key",
)

Options = TypeVar("Options")


@dataclass(frozen=True)
class Scaling:
    """The number of replicas, and the resources of each.

    num_gpus: GPUs per replica; with 0.25, four replicas share a GPU. target_ongoing_requests: Ray adds a
    replica while replicas have more requests than this, waiting or computed, and removes one while they have
    fewer. max_queued_requests: requests that may wait in each of Ray's proxies; further requests get 503.
    Raises ValueError naming the argument, its rule and the value received.
    """

    min_replicas: int = 1
    max_replicas: int = 4
    num_cpus: float = 1.0
    num_gpus: float = 0.0
    target_ongoing_requests: float = 16.0
    max_queued_requests: int = 256
    log_level: str = "info"
    log_format: str = "text"

    def __post_init__(self) -> None:
        for name in ("min_replicas", "max_queued_requests"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.max_replicas < self.min_replicas:
            raise ValueError(
                f"max_replicas must be at least min_replicas, {self.min_replicas}, got {self.max_replicas}"
            )
        for name in ("num_cpus", "num_gpus"):
            if not 0 <= getattr(self, name) <= 1024:  # written so that NaN fails
                raise ValueError(f"{name} must be between 0 and 1024, got {getattr(self, name)}")
        if not 0 < self.target_ongoing_requests <= 1 << 20:
            raise ValueError(
                f"target_ongoing_requests must be above 0 and at most {1 << 20}, got "
                f"{self.target_ongoing_requests}"
            )
        if self.log_format not in FORMATS:
            raise ValueError(f"log_format must be one of {', '.join(FORMATS)}, got {self.log_format!r}")


class Arguments(NamedTuple):
    """settings: of the service in each replica. scaling: number and resources of the replicas."""

    settings: Settings
    scaling: Scaling


def read_arguments(arguments: Mapping[str, Any]) -> Arguments:
    """Return the arguments. arguments: fields of `Settings` and `Scaling`, as numbers or as text to parse.

    Raises ValueError, which names the argument, if it is unknown, malformed or has no meaning under Ray.
    """
    given = {"artifact": DEFAULT_ARTIFACT, **arguments}
    ours = {field.name for field in dataclasses.fields(Scaling)}
    theirs = {field.name for field in dataclasses.fields(Settings)} - set(_WITHOUT_MEANING)
    for name in given:
        if name in _WITHOUT_MEANING:
            raise ValueError(f"{name} has no meaning under Ray, got {given[name]!r}")
        if name not in ours | theirs:
            raise ValueError(f"there is no argument {name!r}; there are {', '.join(sorted(ours | theirs))}")
    settings = _made(Settings, {name: value for name, value in given.items() if name in theirs})
    scaling = _made(Scaling, {name: value for name, value in given.items() if name in ours})
    return Arguments(replace(settings, frontends=0, **_absolute_paths(settings)), scaling)


def _absolute_paths(settings: Settings) -> dict[str, Any]:
    """Return absolute paths, because each replica starts in a different folder."""
    values = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    paths = {name: value.absolute() for name, value in values.items() if isinstance(value, Path)}
    return {**paths, "ops": tuple(path.absolute() for path in settings.ops)}


def _made(kind: type[Options], values: Mapping[str, Any]) -> Options:
    hints = get_type_hints(kind)
    return kind(**{name: _converted(name, hints[name], value) for name, value in values.items()})


def _converted(name: str, hint: Any, value: Any) -> Any:
    """Return a value of the type `hint`: parse text, convert an integer to float. Raise ValueError."""
    adapter: TypeAdapter[Any] = TypeAdapter(hint)
    try:
        if name == "ops":  # a list, or text with commas
            return adapter.validate_python(value.split(",") if isinstance(value, str) else value)
        if isinstance(value, str):
            return adapter.validate_strings(value)
        return adapter.validate_python(value, strict=True)
    except ValidationError as error:
        rule = error.errors(include_url=False)[0]["msg"].removeprefix("Input should be ")
        raise ValueError(f"{name} must be {rule}, got {value!r}") from None
