"""JSON as both runtimes read it: what one of the two parsers would forgive is refused."""

import json
import math
import re
from collections import Counter
from typing import Any

MAX_NESTING = 64
MAX_KEYS = 1000  # of an object: in C++, looking one up takes a time that grows with their number

_LONG_NUMBER = 300  # characters; fewer digits fit float64
_ESCAPE_QUOTE_OR_BRACKET = re.compile(r'\\.|["\[\]{}]', re.DOTALL)


def parse_strict(text: str) -> Any:
    """The value of a JSON text. Raises ValueError, also for what RFC 8259 leaves open.

    That is: a byte order mark, a key that occurs twice in an object, NaN, Infinity, numbers beyond float64,
    half a surrogate pair, more than 1,000 keys in an object, and more than 64 levels of lists and objects.
    """
    _check_nesting(text)
    value = json.loads(
        text,
        object_pairs_hook=_unique_keys,
        parse_constant=_no_constant,
        parse_float=_finite_float,
        parse_int=_bounded_int,
    )
    if "\\ud" in text.lower():  # the escape of half a pair
        json.dumps(value, ensure_ascii=False).encode()  # UnicodeEncodeError is a ValueError
    return value


def _check_nesting(text: str) -> None:
    # Before the parser, which is recursive.
    depth, in_string = 0, False
    for match in _ESCAPE_QUOTE_OR_BRACKET.finditer(text):
        token = match[0]
        if token == '"':
            in_string = not in_string
        elif in_string:
            continue
        elif token in ("[", "{"):
            depth += 1
            if depth > MAX_NESTING:
                raise ValueError(f"lists and objects must be nested at most {MAX_NESTING} levels deep")
        elif token in ("]", "}"):
            depth -= 1


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {twice!r} occurs twice in an object")
    if len(values) > MAX_KEYS:
        raise ValueError(f"an object must have at most {MAX_KEYS} keys, got {len(values)}")
    return values


def _no_constant(name: str) -> float:
    raise ValueError(f"numbers must be finite, got {name}")


def _bounded_int(text: str) -> int:
    if len(text) > _LONG_NUMBER:
        _finite_float(text)
    return int(text)


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"numbers must be finite, got {text[:60]}")
    return value
