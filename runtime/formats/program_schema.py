"""Values in the JSON of torch.export, checked as they are read. The schema: torch/_export/serde/schema.py."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

Json = Any  # as the module json reads it

# The numbers of the schema.
_DTYPES = {
    1: torch.uint8, 2: torch.int8, 3: torch.int16, 4: torch.int32, 5: torch.int64, 6: torch.float16,
    7: torch.float32, 8: torch.float64, 9: torch.complex32, 10: torch.complex64, 11: torch.complex128,
    12: torch.bool, 13: torch.bfloat16, 29: torch.float8_e4m3fn, 30: torch.float8_e5m2,
}  # fmt: skip
_LAYOUTS = {7: torch.strided}
_MEMORY_FORMATS = {
    1: torch.contiguous_format,
    2: torch.channels_last,
    3: torch.channels_last_3d,
    4: torch.preserve_format,
}
_REALS = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}


class GraphError(ValueError):
    """A fault of a program: a feature that Lensbox does not read, or a call that a program must not make."""


def require(condition: bool, rule: str, got: Json) -> None:
    """Raise GraphError with the rule and the value that breaks it, unless the condition holds."""
    if not condition:
        raise GraphError(f"{rule}, got {str(got)[:80]}")


def integer(value: Json) -> int:
    """Return an integer of 64 bits."""
    require(type(value) is int and -(2**63) <= value < 2**63, "a number must be an integer of 64 bits", value)
    return int(value)


def dtype_of(value: Json) -> torch.dtype:
    """Return the dtype of a number of the schema."""
    dtype: torch.dtype = _known(_DTYPES, "dtype", value)
    return dtype


def entry_of(union: Json) -> tuple[str, Json]:
    """Return name and value of the only entry that is not null, which is how a union is written."""
    for kind, value in union.items():
        if len(union) == 1 or value is not None:
            return kind, value
    raise GraphError("a value must have a kind")


def _known(numbers: Mapping[int, Any], what: str, value: Json) -> Any:
    require(integer(value) in numbers, f"a {what} must be known to Lensbox", value)
    return numbers[value]


def _real(value: Json) -> float:
    if isinstance(value, str):
        require(value in _REALS, "a number that is a text must be Infinity, -Infinity or NaN", value)
        return _REALS[value]
    require(type(value) in (int, float), "a number must be real", value)
    return float(value)


def exactly(kind: type, value: Json) -> Json:
    """Return a value of exactly this type."""
    require(type(value) is kind, f"a value must be a {kind.__name__}", value)
    return value


def constant(kind: str, value: Json) -> Any:
    """Return a constant of a kind such as "as_int". Raise GraphError if it is malformed."""
    require(kind in _READERS, "an argument must have a known kind", kind)
    return _READERS[kind](value)


_READERS: Mapping[str, Callable[[Json], Any]] = {
    "as_int": integer,
    "as_float": _real,
    "as_bool": lambda value: exactly(bool, value),
    "as_string": lambda value: exactly(str, value),
    "as_scalar_type": dtype_of,
    "as_memory_format": lambda value: _known(_MEMORY_FORMATS, "memory format", value),
    "as_layout": lambda value: _known(_LAYOUTS, "layout", value),
}


# The types of constants that arguments of an operator take, by torch's kinds of arguments.
ITEM_TYPES: dict[str, tuple[type, ...]] = {
    "IntType": (int,),
    "SymIntType": (int,),
    "FloatType": (int, float),
    "NumberType": (bool, int, float),
    "BoolType": (bool,),
    "SymBoolType": (bool,),
    "StringType": (str,),
    "DeviceObjType": (torch.device,),
    "ScalarTypeType": (torch.dtype,),
    "LayoutType": (torch.layout,),
    "MemoryFormatType": (torch.memory_format,),
}
