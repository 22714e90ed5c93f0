"""The training configuration: one flat dataclass, filled from YAML and `--set key=value`.

Unknown keys and values out of range are refused with a message that names the key, so a typing mistake
never trains for an hour with a default.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lensbox.model import DetectorConfig


class ConfigError(ValueError):
    """A configuration key or value that the trainer does not accept."""


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides a run besides data, device and time limit.

    Lengths are in canvas pixels (256x256) unless a comment says otherwise.
    """

    model: str = "base"
    seed: int = 0

    steps: int = 15_000
    batch_size: int = 256
    learning_rate: float = 4e-3
    final_learning_rate: float = 2e-5
    weight_decay: float = 0.05
    warmup_progress: float = 0.02  # share of the run over which the learning rate rises linearly
    gradient_clip: float = 10.0  # L2 norm; 0 switches clipping off
    ema_decay: float = 0.9998
    # Decay at step n is min(ema_decay, (1 + n) / (ema_warmup + n)), as in TensorFlow: the average reaches
    # back over (ema_warmup + n) / (ema_warmup - 1) steps, a ninth of the run, until ema_decay limits it.
    ema_warmup: float = 10.0
    recalibration_views: int = 2048  # for the average's batch-norm statistics; 0 averages those too

    # Views. The mosaic share is 0 in the last `plain_progress` of the run, where crops take its place.
    mosaic_share: float = 0.2
    whole_share: float = 0.4  # of the views that are not mosaics
    plain_progress: float = 0.15
    crop_window: tuple[float, float] = (0.4, 1.4)  # crop side as a share of the photograph's long side
    crop_on_face: float = 0.85  # share of crops placed around a face
    crop_aspect: float = 0.1
    mosaic_scale: tuple[float, float] = (0.8, 1.7)  # scale of a tile's photograph against fitting the tile
    keep_visible: float = 0.5  # a box with at least this share in view is a target, clipped to the view
    ignore_visible: float = 0.15  # with at least this one it is ignored, with less it is dropped
    photometric: float = 0.3  # chance of each photometric change
    soft_chance: float = 0.0  # of a photograph drawn blurred, by a filter up to 3 times as wide
    light_chance: float = 0.0  # of a view lit from one side
    cover_chance: float = 0.0  # of a view with up to 4 rectangles over parts of faces
    rotate_chance: float = 0.0  # of a view turned about its centre
    rotate_degrees: float = 15.0  # by at most this angle, either way
    # By source folder, `wider` standing for every WIDER FACE event: how often its photographs are drawn (1
    # if not named), and which shares of a box to cut off at left, top, right and bottom, for sources whose
    # boxes include hair.
    source_weights: Mapping[str, float] = dataclasses.field(default_factory=dict)
    source_trims: Mapping[str, tuple[float, ...]] = dataclasses.field(default_factory=dict)

    # Targets
    max_targets: int = 160
    max_ignored: int = 256
    min_target_height: float = 4.5  # lower boxes are ignored
    # Box size sqrt(w·h) that each level takes, finest level first.
    level_sizes: tuple[tuple[float, float], ...] = ((0.0, 24.0), (14.0, 52.0), (36.0, 112.0), (76.0, 1e6))
    top_cells: int = 7
    align_score_power: float = 0.5
    align_iou_power: float = 4.0
    quality_power: float = 1.0  # soft target = normalised alignment · (best IoU of the box)^quality_power

    # Loss
    negative_weight: float = 0.75
    focal_power: float = 2.0
    box_weight: float = 2.0
    small_box_boost: float = 0.0  # adds this to the weight of a box of height 0, falling to 0 at 16 px
    # With teachers: weights of the loss against labels, and of the loss against what teachers predict.
    label_weight: float = 1.0
    distill_weight: float = 1.0

    # Speed
    compile: bool = True
    cuda_graph: bool = True
    bf16: bool = True
    channels_last: bool = False
    resident_images: int = 60_000  # larger data sets pass through a pool of this many on the device
    workers: int = 8

    # Reports
    log_seconds: float = 5.0
    checkpoint_seconds: float = 120.0
    evaluations: int = 1  # evaluations before the last one, spread evenly over the run

    def __post_init__(self) -> None:
        _validate(self)

    def to_json(self) -> str:
        """Returns the configuration as one line of JSON, which `config_from_mapping` accepts again."""
        return json.dumps(dataclasses.asdict(self))


def config_from_mapping(values: Mapping[str, Any], base: TrainConfig | None = None) -> TrainConfig:
    """Returns `base` (default: the defaults) with `values` laid over it.

    Raises:
        ConfigError: a key is unknown, or a value has the wrong type or is out of range.
    """
    base = base or TrainConfig()
    known = {field.name: getattr(TrainConfig(), field.name) for field in dataclasses.fields(TrainConfig)}
    changes = {}
    for key, value in values.items():
        if key not in known:
            raise ConfigError(f"unknown configuration key {key!r}; known keys: {', '.join(sorted(known))}")
        changes[key] = _convert(key, value, known[key])
    return dataclasses.replace(base, **changes)


def config_from_yaml(path: Path) -> dict[str, Any]:
    """Returns the mapping in a YAML (or JSON) file. Raises ConfigError if it holds anything else."""
    text = path.read_text(encoding="utf-8")
    values = json.loads(text) if path.suffix == ".json" else _parse_yaml(text)
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: a configuration must be a mapping of keys, got {type(values).__name__}")
    return values


def parse_assignment(text: str) -> tuple[str, Any]:
    """Splits `key=value` of `--set`; the value is read as JSON if it is JSON, else as text."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ConfigError(f"--set takes key=value, got {text!r}")
    try:
        return key, json.loads(value)
    except json.JSONDecodeError:
        return key, value


def _parse_yaml(text: str) -> Any:
    import yaml  # optional: only a YAML configuration needs it

    return yaml.safe_load(text)


def _convert(key: str, value: Any, default: Any) -> Any:
    """Checks `value` against the type of the key's default; lists become tuples, ints floats."""
    if isinstance(default, bool):
        if isinstance(value, bool):
            return value
    elif isinstance(default, int):
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    elif isinstance(default, float):
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
        if isinstance(value, str):  # YAML 1.1 reads 4e-3 as text
            try:
                return float(value)
            except ValueError:
                pass
    elif isinstance(default, str):
        if isinstance(value, str):
            return value
    elif isinstance(default, tuple):
        if isinstance(value, (list, tuple)) and value:
            if key != "level_sizes" and len(value) != len(default):
                raise ConfigError(f"{key}: must have {len(default)} values, got {value!r}")
            return tuple(_convert(key, item, default[0]) for item in value)
    elif isinstance(value, Mapping):
        like: Any = 1.0 if key == "source_weights" else (0.0,) * 4
        return {str(name): _convert(key, item, like) for name, item in value.items()}
    raise ConfigError(f"{key}: must be like {default!r}, got {value!r}")


def _validate(config: TrainConfig) -> None:
    try:
        DetectorConfig.named(config.model)
    except ValueError as error:
        raise ConfigError(f"model: {error}") from error

    def require(key: str, rule: str, holds: bool) -> None:
        if not holds:
            raise ConfigError(f"{key}: must be {rule}, got {getattr(config, key)!r}")

    for key in ("steps", "batch_size", "max_targets", "max_ignored", "top_cells", "resident_images"):
        require(key, "at least 1", getattr(config, key) >= 1)
    for key in (
        "mosaic_share",
        "whole_share",
        "plain_progress",
        "crop_on_face",
        "photometric",
        "soft_chance",
        "light_chance",
        "cover_chance",
        "rotate_chance",
    ):
        require(key, "between 0 and 1", 0 <= getattr(config, key) <= 1)
    require("rotate_degrees", "between 0 and 45", 0 <= config.rotate_degrees <= 45)
    for key in ("keep_visible", "ignore_visible", "warmup_progress", "crop_aspect"):
        require(key, "at least 0 and below 1", 0 <= getattr(config, key) < 1)
    for key in ("learning_rate", "log_seconds", "checkpoint_seconds"):
        require(key, "above 0", getattr(config, key) > 0)
    for key in (
        "final_learning_rate",
        "weight_decay",
        "gradient_clip",
        "min_target_height",
        "align_score_power",
        "align_iou_power",
        "quality_power",
        "negative_weight",
        "focal_power",
        "box_weight",
        "small_box_boost",
        "label_weight",
        "distill_weight",
        "recalibration_views",
        "workers",
        "evaluations",
    ):
        require(key, "at least 0", getattr(config, key) >= 0)
    require("ema_warmup", "at least 1", config.ema_warmup >= 1)
    require("ema_decay", "at least 0 and below 1", 0 <= config.ema_decay < 1)
    for key in ("crop_window", "mosaic_scale"):
        low, high = getattr(config, key)
        require(key, "two rising numbers above 0", 0 < low <= high)
    require("level_sizes", "rising pairs (low, high)", all(low < high for low, high in config.level_sizes))
    require(
        "source_weights",
        "weights of at least 0",
        all(weight >= 0 for weight in config.source_weights.values()),
    )
    require(
        "source_trims",
        "shares above -1 whose opposite sides sum to less than 1",
        all(
            min(trim) > -1 and trim[0] + trim[2] < 1 and trim[1] + trim[3] < 1
            for trim in config.source_trims.values()
        ),
    )
    require("ignore_visible", "at most keep_visible", config.ignore_visible <= config.keep_visible)
