"""Types of settings with their bounds, and the bounds in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, Strict
from pydantic.fields import FieldInfo


def as_number(value: Any) -> Any:
    """Text and integers as float where that is possible: YAML 1.1 reads 4e-3 as text."""
    if isinstance(value, (int, str)) and not isinstance(value, bool):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _as_many(count: int) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if isinstance(value, (list, tuple)) and len(value) != count:
            raise ValueError(f"must have {count} values, got {value!r}")
        return value

    return check


def _with_text_keys(value: Any) -> Any:
    return {str(key): item for key, item in value.items()} if isinstance(value, Mapping) else value


def _checked(rule: str, holds: Callable[[Any], bool]) -> AfterValidator:
    def check(value: Any) -> Any:
        if not holds(value):
            raise ValueError(f"must be {rule}, got {value!r}")
        return value

    return AfterValidator(check)


def at_most(most: int) -> AfterValidator:
    """For numbers above which a setting is a typing mistake."""
    return _checked(f"at most {most}", lambda value: value <= most)


def _leaves_something(trim: Sequence[float]) -> bool:
    left, top, right, bottom = trim
    return min(trim) > -1 and left + right < 1 and top + bottom < 1


Number = Annotated[float, BeforeValidator(as_number), Field(allow_inf_nan=False)]
Share = Annotated[Number, Field(ge=0, le=1)]
ShareBelowOne = Annotated[Number, Field(ge=0, lt=1)]
Positive = Annotated[Number, Field(gt=0)]
NotNegative = Annotated[Number, Field(ge=0)]
AtLeastOne = Annotated[Number, Field(ge=1)]
Count = Annotated[int, Field(ge=1)]
CountOrNone = Annotated[int, Field(ge=0)]
# Generators take 64 bits, and what is seeded for each process, step or sample adds to or multiplies a seed.
Seed = Annotated[int, Field(ge=-(2**42), le=2**42)]

_Pair = Annotated[tuple[Number, Number], Strict(False), BeforeValidator(_as_many(2))]
_Sides = Annotated[tuple[Number, Number, Number, Number], Strict(False), BeforeValidator(_as_many(4))]
Range = Annotated[_Pair, _checked("two rising numbers above 0", lambda pair: 0 < pair[0] <= pair[1])]
RisingPairs = Annotated[
    tuple[_Pair, ...],
    Strict(False),
    Field(min_length=1),
    _checked("rising pairs (low, high)", lambda pairs: all(low < high for low, high in pairs)),
]
# By name of a source.
Weights = Annotated[
    Mapping[str, Number],
    BeforeValidator(_with_text_keys),
    _checked("weights of at least 0", lambda weights: all(weight >= 0 for weight in weights.values())),
]
Trims = Annotated[
    Mapping[str, _Sides],
    BeforeValidator(_with_text_keys),
    _checked(
        "shares above -1 whose opposite sides sum to less than 1",
        lambda trims: all(map(_leaves_something, trims.values())),
    ),
]


def bounds_in_words(field: FieldInfo) -> str:
    """The bounds of a numeric setting, such as `at least 0 and below 1`."""
    bounds = {}
    for entry in field.metadata:
        for name in ("ge", "gt", "le", "lt"):
            if (value := getattr(entry, name, None)) is not None:
                bounds[name] = value
    if bounds.keys() == {"ge", "le"}:
        return f"between {bounds['ge']} and {bounds['le']}"
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    return " and ".join(f"{words[name]} {value}" for name, value in bounds.items())
