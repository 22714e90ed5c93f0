"""The settings of a training run with their bounds, and how files and `--set` give them.

Lengths are canvas pixels (256x256) unless a comment says otherwise. `docs/training.md` says what each setting
does, and why.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import field
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic.dataclasses import dataclass

from lensbox.common.errors import ExitCode, LensboxError, system_reason
from lensbox.model import DetectorConfig

CONFIG_FILE = "config.json"  # in the folder of a run


class ConfigError(LensboxError, ValueError):
    """An option, or a key or value of the configuration, that training does not accept."""

    exit_code = ExitCode.USAGE


def _as_number(value: Any) -> Any:
    """Return text and integers as float where that is possible: YAML 1.1 reads 4e-3 as text."""
    if isinstance(value, (int, str)) and not isinstance(value, bool):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _rule(rule: str, holds: Callable[[Any], bool]) -> AfterValidator:
    """Refuse values for which `holds` is false, with the rule as the message."""

    def check(value: Any) -> Any:
        if not holds(value):
            raise ValueError(f"must be {rule}")
        return value

    return AfterValidator(check)


def _leaves_something(trim: tuple[float, ...]) -> bool:
    left, top, right, bottom = trim
    return min(trim) > -1 and left + right < 1 and top + bottom < 1


def _size_that_exists(name: str) -> str:
    DetectorConfig.named(name)
    return name


Number = Annotated[float, BeforeValidator(_as_number), Field(allow_inf_nan=False)]
Share = Annotated[Number, Field(ge=0, le=1)]
ShareBelowOne = Annotated[Number, Field(ge=0, lt=1)]
Positive = Annotated[Number, Field(gt=0)]
NotNegative = Annotated[Number, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
CountOrNone = Annotated[int, Field(ge=0)]
# Generators take 64 bits; seeds of processes, steps and samples are sums and products of this one.
Seed = Annotated[int, Field(ge=-(2**42), le=2**42)]
Trim = Annotated[
    tuple[Number, Number, Number, Number],
    Strict(False),
    _rule("shares above -1 whose opposite sides sum to less than 1", _leaves_something),
]


# Strict: no value becomes another type, but for numbers in text.
@dataclass(frozen=True, config=ConfigDict(strict=True))
class TrainConfig:
    """Everything that decides a run besides data, device and time limit."""

    model: Annotated[str, AfterValidator(_size_that_exists)] = "base"
    seed: Seed = 0

    # The optimiser.
    steps: Count = 15_000
    batch_size: Annotated[Count, Field(le=65_536)] = 256
    learning_rate: Positive = 4e-3
    final_learning_rate: NotNegative = 2e-5
    weight_decay: NotNegative = 0.05
    warmup_progress: ShareBelowOne = 0.02  # share of the run over which the learning rate rises linearly
    gradient_clip: NotNegative = 10.0  # L2 norm; 0 switches clipping off

    # The weight average, which the run delivers. Its decay at step n is
    # min(ema_decay, (1 + n) / (ema_warmup + n)), as in TensorFlow: the average reaches back over
    # (ema_warmup + n) / (ema_warmup - 1) steps, a ninth of the run, until ema_decay limits it.
    ema_decay: ShareBelowOne = 0.9998
    ema_warmup: Annotated[Number, Field(ge=1)] = 10.0
    recalibration_views: CountOrNone = 2048  # for the average's batch-norm statistics; 0 averages those too

    # Kinds of views.
    mosaic_share: Share = 0.2
    whole_share: Share = 0.4  # of the views that are not mosaics
    plain_progress: Share = 0.15  # last share of the run, with crops in place of mosaics

    # Chances with which a view's pixels are changed.
    photometric: Share = 0.3  # of each of focus, gamma, contrast, brightness and noise
    soft_chance: Share = 0.0  # of a photograph drawn blurred
    light_chance: Share = 0.0  # of a view lit from one side
    cover_chance: Share = 0.0  # of a view with rectangles over parts of faces
    rotate_chance: Share = 0.0  # of a view turned about its centre

    # Rules for targets and ignored boxes, and the number of slots for each.
    keep_visible: ShareBelowOne = 0.5  # a box with at least this share in view is a target, clipped to it
    ignore_visible: ShareBelowOne = 0.15  # with at least this share it is ignored, with less it is dropped
    max_targets: Count = 160
    max_ignored: Count = 256
    min_target_height: NotNegative = 4.5  # lower boxes are ignored

    # Photographs by source folder; `wider` stands for every WIDER FACE event.
    source_weights: Mapping[str, NotNegative] = field(default_factory=dict)  # how often drawn, default 1
    source_trims: Mapping[str, Trim] = field(default_factory=dict)  # shares of boxes to cut off
    workers: Annotated[CountOrNone, Field(le=1024)] = 8  # threads that decode

    # Weights of the loss against labels and of the loss against the teachers' predictions, with teachers.
    label_weight: NotNegative = 1.0
    distill_weight: NotNegative = 1.0

    # Computation of a step.
    compile: bool = True
    cuda_graph: bool = True
    bf16: bool = True
    channels_last: bool = False

    # Intervals of reports, checkpoints and evaluations.
    log_seconds: Positive = 5.0
    checkpoint_seconds: Positive = 120.0
    evaluations: CountOrNone = 1  # evaluations before the last one, spread evenly over the run

    @field_validator("ignore_visible")
    @classmethod
    def _ignores_no_target(cls, value: float, info: ValidationInfo) -> float:
        if value > info.data.get("keep_visible", 1.0):
            raise ValueError("must be at most keep_visible")
        return value

    def to_json(self, indent: int | None = None) -> str:
        """Return the settings as JSON, which `--config` takes."""
        return json.dumps(dataclasses.asdict(self), indent=indent)

    def replace(self, **values: Any) -> TrainConfig:
        """Return this configuration with other values. Raise ConfigError as `with_values`."""
        return self.with_values(values)

    def with_values(self, values: Mapping[str, Any]) -> TrainConfig:
        """Return this configuration with `values` laid over it.

        Raises:
            ConfigError: a name is unknown, or a value has the wrong type or is out of range.
        """
        known = [member.name for member in dataclasses.fields(self)]
        for name in values:
            if name not in known:
                close = "".join(f" (did you mean {key!r}?)" for key in get_close_matches(str(name), known, 1))
                raise ConfigError(
                    f"unknown configuration key {name!r}{close}; known keys: {', '.join(known)}"
                )
        try:
            return dataclasses.replace(self, **values)
        except ValidationError as error:
            first = error.errors()[0]
        key, *place = first["loc"]
        rule = str(first["ctx"]["error"]) if first["type"] == "value_error" else first["msg"]
        rule = rule.replace("Input should be", "must be").replace("a valid boolean", "true or false")
        where = "".join(f"[{part!r}]" for part in place if part not in ("tuple", "dict"))
        raise ConfigError(f"{key}{where}: {rule}, got {first['input']!r}")


def read_config(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML (or JSON) file.

    Raises:
        ConfigError: the file cannot be read, or holds anything else.
    """
    kind = "JSON" if path.suffix == ".json" else "YAML"
    try:
        text = path.read_text(encoding="utf-8-sig")  # Windows begins files with a mark
        values = json.loads(text) if kind == "JSON" else _parse_yaml(text)
    except OSError as error:
        raise ConfigError(f"configuration file {path} cannot be read: {system_reason(error)}") from error
    except ValueError as error:
        raise ConfigError(f"configuration file {path} must hold {kind}: {error}") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: a configuration must be a mapping of keys, got {type(values).__name__}")
    return values


def _parse_yaml(text: str) -> Any:
    import yaml  # optional: only a YAML configuration needs it

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def parse_assignment(text: str) -> tuple[str, Any]:
    """Split `key=value` of `--set`; the value is read as JSON if it is JSON, else as text."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ConfigError(f"--set takes key=value, got {text!r}")
    try:
        return key, json.loads(value)
    except json.JSONDecodeError:
        return key, value
