"""The types and bounds of fields that detectors, artifacts and settings share, checked by pydantic."""

import dataclasses
import functools
import json
import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, Strict, ValidationError

STRICT = ConfigDict(strict=True, allow_inf_nan=False)

OUTPUTS: Final = ("boxes", "scores", "counts", "labels")  # of every detector
_Class = TypeVar("_Class", bound=type)
_MAX_EXTRA_SIZE = 1 << 16
_MOST_EXTRAS = 100
_MOST_CHARACTERS = 60  # characters of a wrong value, in a message

Orientation = Literal["exif", "stored"]
Identifier = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
NonNegative = Annotated[int, Field(ge=0)]
Side = Annotated[int, Field(ge=1, le=1 << 14)]  # of a canvas, in pixels
GrayLevel = Annotated[int, Field(ge=0, le=255)]
Oversampling = Annotated[int, Field(ge=0, le=1000)]


def described(default: Any, description: str, **bounds: Any) -> Any:
    """Return a field with its default and its description, the help of an option."""
    return Field(default, description=description, **bounds)


def _gray_or_rgb(channels: int) -> int:
    if channels not in (1, 3):
        raise ValueError("must be 1 or 3")
    return channels


def _small(shape: tuple[int, ...]) -> tuple[int, ...]:
    if math.prod(shape) > _MAX_EXTRA_SIZE:
        raise ValueError(f"must have a product of at most {_MAX_EXTRA_SIZE}")
    return shape


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ValueError("must have different names")
    return names


def _usable(extras: Mapping[str, Any]) -> Mapping[str, Any]:
    if len(extras) > _MOST_EXTRAS:
        raise ValueError(f"must be at most {_MOST_EXTRAS}")
    if taken := set(OUTPUTS) & extras.keys():
        raise ValueError(f"must have names other than {', '.join(sorted(taken))}")
    return extras


Channels = Annotated[int, AfterValidator(_gray_or_rgb)]
Classes = Annotated[tuple[Name, ...], Strict(False), Field(max_length=10_000), AfterValidator(_distinct)]
# The shape of a further output, without batch and slots.
Shape = Annotated[
    tuple[Annotated[int, Field(ge=1, le=_MAX_EXTRA_SIZE)], ...],
    Strict(False),
    Field(max_length=8),
    AfterValidator(_small),
]
EXTRAS = AfterValidator(_usable)  # of a mapping by name


def first_reason(error: ValidationError) -> str:
    """Return the first error as a sentence: "height must be less than or equal to 16384, got 20000"."""
    first = error.errors(include_url=False)[0]
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])[1:]
    if first["type"] == "missing":
        return f"it lacks the entry {path!r}"
    if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        return f"{path!r} is not a field"
    if first["type"] == "self_test" or not path:  # the message names path and value itself
        return first["msg"].removeprefix("Value error, ")
    rule = re.sub(r"^(\w+ should|Value error, must)", "must", first["msg"])
    value = json.dumps(first["input"], default=str)
    return (
        f"{path} {rule}, got {value if len(value) <= _MOST_CHARACTERS else value[:_MOST_CHARACTERS] + '...'}"
    )


def plain_errors(cls: _Class) -> _Class:
    """Make the constructor of a pydantic dataclass raise ValueError with the sentence of `first_reason`."""
    construct = cls.__init__  # type: ignore[misc]
    names = [field.name for field in dataclasses.fields(cls)]

    @functools.wraps(construct)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            # By name: pydantic would call a positional argument by its number.
            construct(self, *args[len(names) :], **dict(zip(names, args, strict=False)), **kwargs)
        except ValidationError as error:
            raise ValueError(first_reason(error)) from None

    cls.__init__ = checked  # type: ignore[misc]
    return cls
