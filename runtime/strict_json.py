"""JSON as both runtimes read it: what one of the two parsers would forgive is refused."""

import json
import math
import re
from typing import Any

MAX_NESTING = 64

_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def parse_strict(text: str) -> Any:
    """The value of a JSON text. Raises ValueError, also for what RFC 8259 leaves open.

    That is: a byte order mark, a key that occurs twice in an object, NaN, Infinity, numbers beyond float64,
    half a surrogate pair, and more than 64 levels of lists and objects.
    """
    _check_nesting(text)
    return json.loads(
        text, object_pairs_hook=_unique_keys, parse_constant=_no_constant, parse_float=_finite_float
    )


def _check_nesting(text: str) -> None:
    # Before the parser, which is recursive.
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        token = match[0]
        if token in ("[", "{"):
            depth += 1
            if depth > MAX_NESTING:
                raise ValueError(f"lists and objects must be nested at most {MAX_NESTING} levels deep")
        elif token in ("]", "}"):
            depth -= 1
        elif "\\u" in token:
            json.loads(token).encode()  # raises a ValueError for half a surrogate pair


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} occurs twice in an object")
    return values


def _no_constant(name: str) -> float:
    raise ValueError(f"numbers must be finite, got {name}")


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"numbers must be finite, got {text}")
    return value
