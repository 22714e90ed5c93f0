"""Parse JSON from request bodies. Count its arrays and the like first, because the parser holds the GIL."""

import json
from typing import Any, NoReturn

from lensbox.serve.requests.errors import ApiError

# A megabyte of numbers holds the GIL for 12 ms; a megabyte of empty arrays for many times that.
_SIGNS = {"arrays": b"]", "objects": b"{", "quotes": b'"', "commas": b","}


def check_counts(body: bytes, most: dict[str, int], status: int, code: str, subject: str) -> None:
    """Raise ApiError (status, code) if a JSON text has more "arrays", "objects", "quotes" or "commas".

    subject: how the message begins.
    """
    for what, limit in most.items():
        if (count := body.count(_SIGNS[what])) > limit:
            raise ApiError(status, code, f"{subject} must have at most {limit} {what}, got {count}")


def parse_json(body: bytes | bytearray) -> Any:
    """Return the value of a JSON text in UTF-8. Raises ValueError with the reason."""
    try:
        return json.loads(body, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("its arrays are nested too deeply") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
