"""The sizes of a `FaceDetector`."""

import dataclasses
import json
from typing import Any

CANVAS_SIZE = 256
STRIDES = (4, 8, 16, 32)
ACTIVATIONS = ("relu", "hardswish")


@dataclasses.dataclass(frozen=True)
class DetectorConfig:
    """The layout of a `FaceDetector`; tuples hold one entry per stride 4, 8, 16, 32.

    stem_width: channels of the stride-2 stem.
    widths: channels of each stage of the backbone.
    depths: residual blocks of each stage, after its downsampling convolution.
    dense: whether a stage uses dense 3x3 convolutions; otherwise depthwise-separable ones.
    depthwise_kernels: side of the depthwise kernels of a separable stage, in cells; odd.
    pyramid_width: channels of the feature pyramid and of the heads.
    pyramid_depths: separable residual blocks of each level of the pyramid, after the coarser one was added.
    dense_heads: whether the head of a level is a dense 3x3 convolution or a separable one.
    activation: one of `ACTIVATIONS`, after every convolution but the last of a residual block.
    """

    stem_width: int = 16
    widths: tuple[int, int, int, int] = (32, 72, 112, 160)
    depths: tuple[int, int, int, int] = (1, 2, 3, 3)
    dense: tuple[bool, bool, bool, bool] = (True, False, False, False)
    dense_downsampling: tuple[bool, bool, bool, bool] = (True, True, False, False)
    depthwise_kernels: tuple[int, int, int, int] = (3, 3, 5, 5)
    pyramid_width: int = 48
    pyramid_depths: tuple[int, int, int, int] = (1, 1, 1, 1)
    dense_heads: tuple[bool, bool, bool, bool] = (False, False, False, False)
    activation: str = "hardswish"

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            _check_field(field.name, getattr(self, field.name))

    @classmethod
    def named(cls, name: str) -> "DetectorConfig":
        """Return the size `name`: 'small', 'base' or 'large'. Raise ValueError for any other name.

        'small' and 'base' are for devices; 'large', eleven times the work, is for GPUs and for teachers.
        """
        if name not in _SIZES:
            raise ValueError(f"name must be one of {', '.join(_SIZES)}, got {name!r}")
        return _SIZES[name]

    @classmethod
    def from_json(cls, text: str) -> "DetectorConfig":
        """Return the config that `to_json` wrote. Raise ValueError naming the field that is wrong."""
        try:
            values = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"the detector's config is not JSON: {error}") from error
        names = {field.name for field in dataclasses.fields(cls)}
        if not isinstance(values, dict) or set(values) != names:
            received = sorted(values) if isinstance(values, dict) else values
            raise ValueError(f"the detector's config must have the fields {sorted(names)}, got {received}")
        # JSON knows lists, the config tuples.
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return cls(**fields)

    def to_json(self) -> str:
        """Return the config as one line of JSON."""
        return json.dumps(dataclasses.asdict(self))


def _check_field(name: str, value: object) -> None:
    if name in ("stem_width", "pyramid_width"):
        if not _is_count(value, at_least=1):
            raise ValueError(f"{name} must be a positive integer, got {value!r}")
        return
    if name == "activation":
        if value not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {value!r}")
        return
    if not isinstance(value, tuple) or len(value) != len(STRIDES):
        raise ValueError(f"{name} must hold {len(STRIDES)} values, one per stride {STRIDES}, got {value!r}")
    if name.startswith("dense"):
        rule, holds = "booleans", all(isinstance(item, bool) for item in value)
    elif name in ("depths", "pyramid_depths"):
        rule, holds = "integers of at least 0", all(_is_count(item, at_least=0) for item in value)
    elif name == "depthwise_kernels":
        rule, holds = "odd positive integers", all(_is_count(item, at_least=1) and item % 2 for item in value)
    else:
        rule, holds = "positive integers", all(_is_count(item, at_least=1) for item in value)
    if not holds:
        raise ValueError(f"{name} must hold {rule}, got {value!r}")


def _is_count(value: object, at_least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= at_least


_SIZES = {
    "small": DetectorConfig(
        stem_width=8,
        widths=(24, 48, 64, 96),
        depths=(1, 2, 2, 2),
        pyramid_width=24,
        pyramid_depths=(0, 0, 0, 0),
        dense_heads=(True, True, False, False),
    ),
    "base": DetectorConfig(),
    # Dense convolutions throughout: they are what tensor cores are good at.
    "large": DetectorConfig(
        stem_width=32,
        widths=(64, 128, 192, 256),
        depths=(2, 3, 3, 2),
        dense=(True, True, True, True),
        dense_downsampling=(True, True, True, True),
        pyramid_width=64,
        pyramid_depths=(2, 2, 2, 1),
        dense_heads=(True, True, True, True),
    ),
}
