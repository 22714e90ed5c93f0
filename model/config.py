"""The sizes of a `FaceDetector`."""

import dataclasses
import json
from typing import Annotated, Literal

from pydantic import AfterValidator, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from lensbox.common.fields import STRICT, Count, NonNegative, first_reason, plain_errors

CANVAS_SIZE = 256
STRIDES = (4, 8, 16, 32)

Activation = Literal["relu", "hardswish"]


def _odd(side: int) -> int:
    if side % 2 == 0:
        raise ValueError("must be odd")
    return side


_Kernel = Annotated[Count, AfterValidator(_odd)]
_Counts = tuple[Count, Count, Count, Count]
_Depths = tuple[NonNegative, NonNegative, NonNegative, NonNegative]
_Flags = tuple[bool, bool, bool, bool]


@plain_errors
@dataclass(frozen=True, config={**STRICT, "extra": "forbid"})
class DetectorConfig:
    """The layout of a `FaceDetector`. Tuples hold one entry per stride 4, 8, 16, 32.

    stem_width: channels of the stride-2 stem.
    widths: channels of each stage of the backbone.
    depths: residual blocks of each stage, after its downsampling convolution.
    dense: True for dense 3x3 convolutions in a stage, False for depthwise-separable convolutions.
    depthwise_kernels: side of the depthwise kernels of a separable stage, in cells; odd.
    pyramid_width: channels of the feature pyramid and of the heads.
    pyramid_depths: separable residual blocks of each level of the pyramid, after the coarser level was added.
    dense_heads: True for a dense 3x3 convolution in the head of a level, False for a separable convolution.
    activation: of every convolution except the last one of a residual block.
    mirrored: True to average, in eval mode, the predictions for a canvas and for its mirror image. This costs
        twice the computation.
    """

    stem_width: Count = 16
    widths: _Counts = (32, 72, 112, 160)
    depths: _Depths = (1, 2, 3, 3)
    dense: _Flags = (True, False, False, False)
    dense_downsampling: _Flags = (True, True, False, False)
    depthwise_kernels: tuple[_Kernel, _Kernel, _Kernel, _Kernel] = (3, 3, 5, 5)
    pyramid_width: Count = 48
    pyramid_depths: _Depths = (1, 1, 1, 1)
    dense_heads: _Flags = (False, False, False, False)
    activation: Activation = "hardswish"
    mirrored: bool = False

    @classmethod
    def named(cls, name: str) -> "DetectorConfig":
        """Return the config 'small', 'base' or 'large'. Raise ValueError for any other name.

        'small' and 'base' are for edge devices. 'large' has 20 times the FLOPs of 'base', for GPUs and as a
        teacher.
        """
        if name not in _SIZES:
            raise ValueError(f"name must be one of {', '.join(_SIZES)}, got {name!r}")
        return _SIZES[name]

    @classmethod
    def from_json(cls, text: str) -> "DetectorConfig":
        """Parse the output of `to_json`. Raise ValueError that names a wrong field."""
        try:
            return TypeAdapter(cls).validate_json(text)
        except ValidationError as error:
            raise ValueError(f"the detector's config is wrong: {first_reason(error)}") from error

    def to_json(self) -> str:
        """Return the config as one line of JSON."""
        return json.dumps(dataclasses.asdict(self))


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
    # Only dense convolutions: they are fast on tensor cores.
    "large": DetectorConfig(
        stem_width=32,
        widths=(64, 128, 192, 232),
        depths=(2, 3, 3, 2),
        dense=(True, True, True, True),
        dense_downsampling=(True, True, True, True),
        pyramid_width=64,
        pyramid_depths=(2, 2, 2, 1),
        dense_heads=(True, True, True, True),
        mirrored=True,
    ),
}
