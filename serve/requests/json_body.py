"""Read JSON bodies and query parameters with pydantic models, and describe their errors."""

import re
from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from lensbox.serve.errors import ApiError, shown

Model = TypeVar("Model", bound=BaseModel)

_SIGNS = {"arrays": b"]", "objects": b"{", "quotes": b'"', "commas": b","}


def check_counts(body: bytes, most: Mapping[str, int], status: int, code: str, subject: str) -> None:
    """Raise ApiError (status, code) if a JSON text has more than `most` of a sign (a key of `_SIGNS`).

    The parser holds the GIL: a megabyte of boxes takes 5 ms, a megabyte of unknown keys more than a second.
    subject: the first words of the message.
    """
    for what, limit in most.items():
        if (count := body.count(_SIGNS[what])) > limit:
            raise ApiError(status, code, f"{subject} must have at most {limit} {what}, got {count}")


def read_json(body: bytes | bytearray, model: type[Model], status: int, code: str) -> Model:
    """Parse a JSON text without conversions between types.

    Raises ApiError: (status, "invalid_json") if the text is not JSON, (status, code) if the model rejects it.
    """
    try:
        return model.model_validate_json(body, strict=True)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        if fault["type"] == "json_invalid":
            reason = fault["msg"].removeprefix("Invalid JSON: ")
            raise ApiError(status, "invalid_json", f"the body must be JSON: {reason}") from None
        raise ApiError(status, code, fault_message(error, model, "key of the body")) from None


def fault_message(error: ValidationError, model: type[BaseModel], kind: str) -> str:
    """Return a message that names the place, the rule and the value received. kind: the word for a field.

    Each member of a union reports an error. Show the error of the member that read furthest.
    """
    faults = error.errors(include_url=False)
    of_one_field = [fault for fault in faults if fault["loc"][:1] == faults[0]["loc"][:1]]
    fault = max(of_one_field, key=lambda fault: [step for step in fault["loc"] if isinstance(step, int)])
    place, value = _place(fault["loc"]), fault["input"]
    if fault["type"] == "extra_forbidden":
        known = f" (known: {', '.join(model.model_fields) or 'none'})" if len(fault["loc"]) == 1 else ""
        return f"unknown {kind} {shown(place)}{known}, got the value {shown(value)}"
    if fault["type"] == "value_error":  # Lensbox's own validator, whose message is complete
        return str(fault["ctx"]["error"])
    if fault["type"] == "missing":
        return f"{place} must be given, got the keys {shown(sorted(value))}"
    return f"{place} {re.sub(r'^[A-Z][a-z]+ should ', 'must ', fault['msg'])}, got {shown(value)}"


def _place(steps: tuple[int | str, ...]) -> str:
    """Return a place such as targets[3][0]; steps that begin with "[" name members of unions."""
    names = [step for step in steps if isinstance(step, int) or not step.startswith("[")]
    place = "".join(f"[{name}]" if isinstance(name, int) else f".{name}" for name in names)
    return place.removeprefix(".") or "the body"
