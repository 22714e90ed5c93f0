"""What Python and torch calculate from a grid of numbers, for the C++ test of the functions in programs.

`python -m tests.helpers.number_cases` writes `cpp_runtime/tests/number_cases.json`.
"""

import itertools
import json
import math
import operator
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

FILE = Path(__file__).resolve().parents[2] / "cpp_runtime" / "tests" / "number_cases.json"

_INTS = [0, 1, -1, 2, -3, 7, 64, 2**53 + 1, -(2**62) - 1, 2**63 - 1, -(2**63)]
_FLOATS = [0.0, -0.0, 0.5, -1.5, 2.5, 0.1, 5e-324, -1e300, 2.0**53, 2.0**63, math.inf, -math.inf, math.nan]
NUMBERS: list[bool | int | float] = [True, False, *_INTS, *_FLOATS]

_MATH = ("trunc", "floor", "ceil", "sqrt")
_SYM_ONE = ("sym_not", "sym_float", "sym_int", "sym_sqrt")
_OPERATORS = ("add", "sub", "mul", "floordiv", "mod", "truediv", "pow", "lshift", "rshift", "and_", "or_")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
OF_ONE: dict[str, Callable[..., Any]] = {
    **{f"math.{name}": getattr(math, name) for name in _MATH},
    **{f"torch.{name}": getattr(torch, name) for name in _SYM_ONE},
    **{f"_operator.{name}": getattr(operator, name) for name in ("neg", "pos")},
    "Abs": abs,
    "RoundToInt": round,
}
OF_TWO: dict[str, Callable[..., Any]] = {
    **{f"_operator.{name}": getattr(operator, name) for name in (*_OPERATORS, *_COMPARISONS)},
    "torch.sym_max": torch.sym_max,
    "torch.sym_min": torch.sym_min,
}


def _result(function: Callable[..., Any], *numbers: bool | int | float) -> Any:
    """Return what the function gives; None for an exception, a complex number and an int beyond 64 bits."""
    if function in (operator.pow, operator.lshift) and not any(
        isinstance(number, float) for number in numbers
    ):
        is_beyond = abs(numbers[0]) > (1 if function is operator.pow else 0) and numbers[1] > 64
        if is_beyond:  # would fill the memory
            return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = function(*numbers)
    except (ArithmeticError, TypeError, ValueError):
        return None
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return None
    return None if isinstance(value, complex) else written(value)


def written(value: bool | int | float) -> bool | int | str:
    """Return a number for JSON: a float as hexadecimal text."""
    return value.hex() if isinstance(value, float) else value


def document() -> dict[str, Any]:
    """Return numbers, and of each function the results of all numbers or of all pairs."""
    one = {name: [_result(function, x) for x in NUMBERS] for name, function in OF_ONE.items()}
    pairs = list(itertools.product(NUMBERS, NUMBERS))
    two = {name: [_result(function, x, y) for x, y in pairs] for name, function in OF_TWO.items()}
    return {"numbers": [written(x) for x in NUMBERS], "one": one, "two": two}


def text() -> str:
    """Return the document, a function per line."""
    parts = document()
    lines = ['{"numbers": ' + json.dumps(parts["numbers"])]
    for key in ("one", "two"):
        functions = ",\n".join(
            f"{json.dumps(name)}: {json.dumps(results)}" for name, results in parts[key].items()
        )
        lines.append(f'"{key}": {{\n{functions}}}')
    return ",\n".join(lines) + "}\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
