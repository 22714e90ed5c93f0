"""JSON from request bodies."""

import json
from typing import Any, NoReturn


def parse_json(body: bytes | bytearray) -> Any:
    """The value of a JSON text in UTF-8. Raises ValueError, which says why it is none.

    The parser stops every other thread of the process while it works: callers bound first what it is given.
    """
    try:
        return json.loads(body, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("its arrays are nested too deeply") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
