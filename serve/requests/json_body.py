"""Read JSON with msgspec, which skips unknown keys without building them, and describe its errors."""

from typing import Any, TypeVar

import msgspec
from msgspec.json import Decoder

from lensbox.serve.errors import ApiError, shown

Typed = TypeVar("Typed")


def read_json(body: Any, decoder: Decoder[Typed], status: int, code: str, name: str = "") -> Typed:
    """Parse a JSON text without conversions between types. name: of a text within the body, for messages.

    Raises ApiError: (status, "invalid_json") if the text is not JSON, (status, code) if its type is wrong.
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise ApiError(status, code, fault_message(error, decoder.type, "the body", name)) from None
    except (ValueError, RecursionError) as error:  # malformed, not UTF-8, too deep
        raise ApiError(status, "invalid_json", f"the body must be JSON: {error}") from None


def fault_message(
    error: msgspec.ValidationError, kind: Any, whole: str, name: str = "", given: Any = None
) -> str:
    """Return the place, the rule and what was received.

    kind: the type. whole: words for the whole message. name: of the part that was read. given: all values by
    name, if known. msgspec says "Expected `float`, got `str` - at `$.targets[0][3]`", or what a
    `__post_init__` has raised.
    """
    rule, _, path = str(error).replace("`", "").partition(" - at $")
    place = f"{name}{path}".removeprefix(".")
    if rule.startswith("Object contains unknown field"):
        known = ", ".join(kind.__struct_fields__) or "none"
        return f"{place or whole} has the unknown key {shown(rule.split()[-1])} (known: {known})"
    if rule.startswith("Object missing"):
        return f"{rule.split()[-1]} must be given in {place or whole}"
    if not rule.startswith(("Expected", "Invalid", "Number", "Integer")):
        return rule
    if given is not None and place in given:
        rule = f"{rule.partition(', got')[0]}, got {shown(given[place])}"
    return f"{place or whole}: {rule[0].lower()}{rule[1:]}"
