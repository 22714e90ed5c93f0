"""The settings of a run, in groups, each with its bounds beside it.

Files, `--set` and the metadata of weights name a setting without its group: `mosaic_share`, not
`views.mosaic_share`. Lengths are canvas pixels (256x256) unless a comment says otherwise.
`docs/training.md` says what each one does, and why.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

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

from lensbox.model import DetectorConfig
from lensbox.train.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

STRICT = ConfigDict(strict=True)  # no value becomes another type, but for numbers in text


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


Number = Annotated[float, BeforeValidator(_as_number), Field(allow_inf_nan=False)]
Share = Annotated[Number, Field(ge=0, le=1)]
ShareBelowOne = Annotated[Number, Field(ge=0, lt=1)]
Positive = Annotated[Number, Field(gt=0)]
NotNegative = Annotated[Number, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
CountOrNone = Annotated[int, Field(ge=0)]
# Generators take 64 bits, and what is seeded for each process, step or sample adds to or multiplies a seed.
Seed = Annotated[int, Field(ge=-(2**42), le=2**42)]
_Pair = Annotated[tuple[Number, Number], Strict(False)]
Range = Annotated[_Pair, _rule("two rising numbers above 0", lambda pair: 0 < pair[0] <= pair[1])]
RisingPairs = Annotated[
    tuple[_Pair, ...],
    Strict(False),
    Field(min_length=1),
    _rule("rising pairs (low, high)", lambda pairs: all(low < high for low, high in pairs)),
]
Trim = Annotated[
    tuple[Number, Number, Number, Number],
    Strict(False),
    _rule("shares above -1 whose opposite sides sum to less than 1", _leaves_something),
]


@dataclass(frozen=True, config=STRICT)
class OptimizerSettings:
    """How many steps, of how many views, and how far each one goes."""

    steps: Count = 15_000
    batch_size: Annotated[Count, Field(le=65_536)] = 256
    learning_rate: Positive = 4e-3
    final_learning_rate: NotNegative = 2e-5
    weight_decay: NotNegative = 0.05
    warmup_progress: ShareBelowOne = 0.02  # share of the run over which the learning rate rises linearly
    gradient_clip: NotNegative = 10.0  # L2 norm; 0 switches clipping off


@dataclass(frozen=True, config=STRICT)
class AverageSettings:
    """The weight average, which is what a run delivers."""

    ema_decay: ShareBelowOne = 0.9998
    # Decay at step n is min(ema_decay, (1 + n) / (ema_warmup + n)), as in TensorFlow: the average reaches
    # back over (ema_warmup + n) / (ema_warmup - 1) steps, a ninth of the run, until ema_decay limits it.
    ema_warmup: Annotated[Number, Field(ge=1)] = 10.0
    recalibration_views: CountOrNone = 2048  # for the average's batch-norm statistics; 0 averages those too


@dataclass(frozen=True, config=STRICT)
class ViewSettings:
    """What a view shows. Mosaics give way to crops in the last `plain_progress` of the run."""

    mosaic_share: Share = 0.2
    whole_share: Share = 0.4  # of the views that are not mosaics
    plain_progress: Share = 0.15
    crop_window: Range = (0.4, 1.4)  # crop side as a share of the photograph's long side
    crop_on_face: Share = 0.85  # share of crops placed around a face
    crop_aspect: ShareBelowOne = 0.1
    mosaic_scale: Range = (0.8, 1.7)  # scale of a tile's photograph against fitting the tile


@dataclass(frozen=True, config=STRICT)
class ChangeSettings:
    """How a view's pixels are changed, each change with a chance of its own."""

    photometric: Share = 0.3  # of each of focus, gamma, contrast, brightness and noise
    soft_chance: Share = 0.0  # of a photograph drawn blurred, by a filter up to 3 times as wide
    light_chance: Share = 0.0  # of a view lit from one side
    cover_chance: Share = 0.0  # of a view with up to 4 rectangles over parts of faces
    rotate_chance: Share = 0.0  # of a view turned about its centre
    rotate_degrees: Annotated[Number, Field(ge=0, le=45)] = 15.0  # by at most this angle, either way


@dataclass(frozen=True, config=STRICT)
class BoxSettings:
    """Which boxes of a view are targets and which are ignored, and how many slots there are for them."""

    keep_visible: ShareBelowOne = 0.5  # a box with at least this share in view is a target, clipped to it
    ignore_visible: ShareBelowOne = 0.15  # with at least this one it is ignored, with less it is dropped
    max_targets: Count = 160
    max_ignored: Count = 256
    min_target_height: NotNegative = 4.5  # lower boxes are ignored

    @field_validator("ignore_visible")
    @classmethod
    def _ignores_no_target(cls, value: float, info: ValidationInfo) -> float:
        if value > info.data.get("keep_visible", 1.0):
            raise ValueError("must be at most keep_visible")
        return value


@dataclass(frozen=True, config=STRICT)
class DataSettings:
    """Which photographs are drawn how often, and how they get to the device.

    `source_weights` and `source_trims` go by source folder, `wider` standing for every WIDER FACE event: how
    often its photographs are drawn (1 if not named), and which shares of a box to cut off at left, top, right
    and bottom, for sources whose boxes include hair.
    """

    source_weights: Mapping[str, NotNegative] = field(default_factory=dict)
    source_trims: Mapping[str, Trim] = field(default_factory=dict)
    resident_images: Count = 60_000  # larger data sets pass through a pool of this many on the device
    workers: Annotated[CountOrNone, Field(le=1024)] = 8


@dataclass(frozen=True, config=STRICT)
class AssignmentSettings:
    """Which cells shall predict which box."""

    # Box size sqrt(w·h) that each level takes, finest level first.
    level_sizes: RisingPairs = ((0.0, 24.0), (14.0, 52.0), (36.0, 112.0), (76.0, 1e6))
    top_cells: Count = 7
    align_score_power: NotNegative = 0.5
    align_iou_power: NotNegative = 4.0
    quality_power: NotNegative = 1.0  # soft target = normalised alignment · (best IoU of the box)^this


@dataclass(frozen=True, config=STRICT)
class LossSettings:
    """How the parts of the loss are weighted."""

    negative_weight: NotNegative = 0.75
    focal_power: NotNegative = 2.0
    box_weight: NotNegative = 2.0
    small_box_boost: NotNegative = 0.0  # added to the weight of a box of height 0, falling to 0 at 16 px
    # With teachers: weights of the loss against labels, and of the loss against what teachers predict.
    label_weight: NotNegative = 1.0
    distill_weight: NotNegative = 1.0


@dataclass(frozen=True, config=STRICT)
class SpeedSettings:
    """How a step is computed."""

    compile: bool = True
    cuda_graph: bool = True
    bf16: bool = True
    channels_last: bool = False


@dataclass(frozen=True, config=STRICT)
class ReportSettings:
    """How often a run says and saves how far it is."""

    log_seconds: Positive = 5.0
    checkpoint_seconds: Positive = 120.0
    evaluations: CountOrNone = 1  # evaluations before the last one, spread evenly over the run


def _size_that_exists(name: str) -> str:
    DetectorConfig.named(name)
    return name


@dataclass(frozen=True, config=STRICT)
class TrainConfig:
    """Everything that decides a run besides data, device and time limit."""

    model: Annotated[str, AfterValidator(_size_that_exists)] = "base"
    seed: Seed = 0

    optimizer: OptimizerSettings = OptimizerSettings()
    average: AverageSettings = AverageSettings()
    views: ViewSettings = ViewSettings()
    changes: ChangeSettings = ChangeSettings()
    boxes: BoxSettings = BoxSettings()
    data: DataSettings = DataSettings()
    assignment: AssignmentSettings = AssignmentSettings()
    loss: LossSettings = LossSettings()
    speed: SpeedSettings = SpeedSettings()
    reports: ReportSettings = ReportSettings()

    def flat(self) -> dict[str, Any]:
        """Return all settings by name, without their groups, as `config_from_mapping` takes them."""
        values: dict[str, Any] = {}
        for name, value in dataclasses.asdict(self).items():
            values |= value if name in _GROUPS else {name: value}
        return values

    def to_json(self) -> str:
        """Return `flat` as one line of JSON."""
        return json.dumps(self.flat())

    def replace(self, **values: Any) -> TrainConfig:
        """Return this configuration with other values, by the names of settings without their groups.

        Raises:
            ConfigError: as `config_from_mapping`.
        """
        return config_from_mapping(values, self)


# Group -> its settings.
_GROUPS = {
    name: [setting.name for setting in dataclasses.fields(value)]
    for name, value in vars(TrainConfig()).items()
    if dataclasses.is_dataclass(value)
}
# Setting -> its group, "" for those of no group.
_GROUP_OF = {
    **{member.name: "" for member in dataclasses.fields(TrainConfig) if member.name not in _GROUPS},
    **{setting: group for group, members in _GROUPS.items() for setting in members},
}


def config_from_mapping(values: Mapping[str, Any], base: TrainConfig | None = None) -> TrainConfig:
    """Return `base` (default: the defaults) with `values`, by the names of settings, laid over it.

    Raises:
        ConfigError: a name is unknown, or a value has the wrong type or is out of range, so that a typing
            mistake never trains for an hour with a default.
    """
    config = base or TrainConfig()
    changes: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        if name not in _GROUP_OF:
            close = "".join(f" (did you mean {key!r}?)" for key in get_close_matches(str(name), _GROUP_OF, 1))
            known = ", ".join(sorted(_GROUP_OF))
            raise ConfigError(f"unknown configuration key {name!r}{close}; known keys: {known}")
        changes.setdefault(_GROUP_OF[name], {})[name] = value
    own = changes.pop("", {})
    groups = {name: checked(getattr(config, name), group) for name, group in changes.items()}
    return checked(config, {**own, **groups})


_Settings = TypeVar("_Settings", bound="DataclassInstance")


def checked(settings: _Settings, changes: Mapping[str, Any]) -> _Settings:
    """Return the settings with changes. Raise ConfigError, naming the first value that pydantic refuses."""
    try:
        return dataclasses.replace(settings, **changes)
    except ValidationError as error:
        first = error.errors()[0]
    name, *place = first["loc"]
    rule = str(first["ctx"]["error"]) if first["type"] == "value_error" else first["msg"]
    rule = rule.replace("Input should be", "must be").replace("a valid boolean", "true or false")
    where = "".join(f"[{part!r}]" for part in place if part not in ("tuple", "dict"))
    raise ConfigError(f"{name}{where}: {rule}, got {first['input']!r}")
