"""The settings and the inputs of a training run: types, bounds, defaults and help.

`lensbox train --help` prints the descriptions, and `train/cli.py` makes the options from them. Importing this
must not import torch. Lengths are canvas pixels (256x256).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from pydantic.dataclasses import dataclass

from lensbox.common.errors import ExitCode, LensboxError, system_reason
from lensbox.common.fields import Count, Fraction, NonNegative, described, first_reason
from lensbox.common.files import read_input
from lensbox.evaluation.cli import DataInputs

CONFIG_FILE = "config.json"  # in the folder of a run


class ConfigError(LensboxError, ValueError):
    """An option, or a key or value of the configuration, that training does not accept."""

    exit_code = ExitCode.USAGE


def _leaves_something(trim: tuple[float, ...]) -> tuple[float, ...]:
    left, top, right, bottom = trim
    if min(trim) <= -1 or left + right >= 1 or top + bottom >= 1:
        raise ValueError("must be shares above -1 whose opposite sides sum to less than 1")
    return trim


ShareBelowOne = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
# Generators take 64 bits; seeds of samples are sums and products of this one.
Seed = Annotated[int, Field(ge=-(2**42), le=2**42)]
Trim = Annotated[tuple[float, float, float, float], AfterValidator(_leaves_something)]


@dataclass(frozen=True, config=ConfigDict(allow_inf_nan=False))
class TrainConfig:
    """Everything that decides a run besides data and device."""

    model: Literal["small", "base", "large"] = described(
        "base", "Size of the detector. large is for GPUs and for teaching; it also sees each canvas mirrored."
    )
    seed: Seed = described(0, "Seed of the first weights and of the views.")

    steps: Count = described(15_000, "Optimiser steps of the run.")
    batch_size: Annotated[int, Field(ge=1, le=65_536)] = described(
        256, "Views per step. The default suits a GPU, 16 to 64 a CPU."
    )
    learning_rate: Positive = described(
        4e-3, "Maximum, for batches of 256. Smaller batches need less: 2e-3 for 16 to 64."
    )
    final_learning_rate: NotNegative = described(2e-5, "End of the cosine schedule.")
    weight_decay: NotNegative = described(0.05, "Of AdamW, only for weights with more than one dimension.")
    warmup_progress: ShareBelowOne = described(
        0.02, "Share of the run in which the learning rate rises: Adam's first estimates are poor."
    )
    gradient_clip: NotNegative = described(
        10.0, "Maximum L2 norm of the gradient: a batch with wrong labels then does little harm. 0: off."
    )

    ema_decay: ShareBelowOne = described(
        0.9998, "Longest memory of the weight average (EMA), which the run delivers: 1 / (1 - decay) steps."
    )
    ema_warmup: Annotated[float, Field(ge=1)] = described(
        10.0,
        "The decay at step n is min(ema_decay, (1 + n) / (ema_warmup + n)): the average covers about the "
        "last n / (ema_warmup - 1) steps and forgets the start even in a short run.",
    )
    recalibration_views: NonNegative = described(
        2048,
        "Whole photographs on which the average's batch-norm statistics are measured before it is scored or "
        "saved. 0 averages the statistics of training, which do not fit the averaged weights.",
    )

    mosaic_share: Fraction = described(0.2, "Share of views that are mosaics, with more and smaller faces.")
    whole_share: Fraction = described(
        0.4, "Share of the other views that are whole photographs, as at inference."
    )
    plain_progress: Fraction = described(
        0.15, "Last share of the run without mosaics: training ends on inputs as at inference."
    )

    photometric: Fraction = described(
        0.3, "Probability of each change: focus, gamma, contrast, brightness, noise."
    )
    soft_chance: Fraction = described(
        0.0, "Probability of a blurred photograph, drawn with a filter 1 to 3 times as wide. Costs no time."
    )
    light_chance: Fraction = described(
        0.0, "Probability of light from one side: up to e^0.8 = 2.2 times as bright there, as dark opposite."
    )
    cover_chance: Fraction = described(
        0.0, "Probability of a view with up to 4 gray rectangles over parts of faces, which stay targets."
    )
    rotate_chance: Fraction = described(
        0.0, "Probability of a view rotated about its centre by up to 15 degrees either way."
    )

    keep_visible: ShareBelowOne = described(
        0.5, "A box with at least this share in view is a target, clipped to the view."
    )
    ignore_visible: ShareBelowOne = described(
        0.15, "A box with at least this share in view is ignored; with less it is background."
    )
    max_targets: Count = described(
        160, "Target slots per view: fixed shapes can be compiled. The smallest faces of a crowd are ignored."
    )
    max_ignored: Count = described(256, "Slots for ignored boxes per view.")
    min_target_height: NotNegative = described(4.5, "Boxes below this height are ignored.")

    source_weights: Mapping[str, NotNegative] = Field(
        default_factory=dict,
        description='Relative frequency of sources, such as {"office": 0.5}; 1 if not named. wider means all '
        "WIDER FACE events. For sources with poor labels or too many similar photographs.",
    )
    source_trims: Mapping[str, Trim] = Field(
        default_factory=dict,
        description="Shares to cut off from a source's boxes at left, top, right, bottom, for boxes that "
        "include hair.",
    )
    workers: Annotated[int, Field(ge=0, le=1024)] = described(8, "Threads that decode photographs.")

    label_weight: NotNegative = described(1.0, "With teachers: weight of the loss against labels.")
    distill_weight: NotNegative = described(
        1.0, "With teachers: weight of the loss against their predictions."
    )

    compile: bool = described(
        True, "Compile views, network and loss. Switch it off for short runs, as compiling takes time."
    )
    cuda_graph: bool = described(
        True, "Capture the step as a CUDA graph: kernel launches dominate in a small network."
    )
    bf16: bool = described(True, "bfloat16 autocast of the network; loss and boxes stay float32.")
    channels_last: bool = described(False, "Memory layout of the network.")

    log_seconds: Positive = described(5.0, "Seconds between reports; each report waits for the device.")
    checkpoint_seconds: Positive = described(
        120.0, "Seconds between checkpoints, the maximum loss after an interruption."
    )
    evaluations: NonNegative = described(1, "Evaluations before the final one, evenly spaced.")

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
        """Return this configuration with `values` laid over it.

        Raise ConfigError if a name is unknown, or a value has the wrong type or is out of range.
        """
        known = [member.name for member in dataclasses.fields(self)]
        for name in values:
            if name not in known:
                close = "".join(f" (did you mean {key!r}?)" for key in get_close_matches(name, known, 1))
                raise ConfigError(
                    f"unknown configuration key {name!r}{close}; known keys: {', '.join(known)}"
                )
        try:
            return dataclasses.replace(self, **values)
        except ValidationError as error:
            raise ConfigError(first_reason(error)) from error


def read_config(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file; JSON is YAML too. Raise ConfigError for anything else."""
    import yaml

    try:
        values = yaml.safe_load(read_input(path).decode("utf-8-sig"))  # Windows begins files with a mark
    except OSError as error:
        raise ConfigError(f"configuration file {path} cannot be read: {system_reason(error)}") from error
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"configuration file {path} must hold YAML: {error}") from error
    if not isinstance(values, dict | None):
        raise ConfigError(f"{path}: a configuration must be a mapping of keys, got {type(values).__name__}")
    return {str(key): value for key, value in (values or {}).items()}


@dataclass(frozen=True, kw_only=True)
class TrainInputs(DataInputs):
    """The options of `lensbox train` besides the settings."""

    val: tuple[Path, ...] = described((), "Photographs to evaluate on, as --data.")
    output: Path = described(Path("runs/train"), "Folder of the run.")
    config: tuple[Path, ...] = described(
        (), "YAML files with settings; later ones override. Options override files."
    )
    resume: bool = described(False, "Go on from the checkpoint in --output.")
    weights: Path | None = described(None, "Start from this safetensors file, to fine-tune it.")
    teacher: tuple[Path, ...] = described(
        (), "Weights of larger detectors, whose predictions are learned too."
    )
    leave_out: str | None = described(
        None, "K/N: train without fold K of N of the photographs, to be their teacher."
    )
    print_config: bool = described(False, "Print the settings and stop.")
