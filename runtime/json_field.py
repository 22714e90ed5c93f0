"""Typed reading of JSON values; what does not fit is named by its path."""

import json
import re
from dataclasses import dataclass
from typing import Any, NoReturn

MAX_FLOAT32 = (2 - 2**-23) * 2.0**127

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class FieldError(ValueError):
    """A value is missing or not what it must be."""


@dataclass(frozen=True)
class Field:
    """A value of a JSON document, and its path such as 'self_test.image.shape[0]'; '' is the document."""

    value: Any
    path: str = ""

    def __getitem__(self, key: str) -> "Field":
        """The member of an object."""
        path = f"{self.path}.{key}" if self.path else key
        members = self.members()
        if key not in members:
            raise FieldError(f"it lacks the entry {path!r}")
        return Field(members[key], path)

    def members(self) -> dict[str, Any]:
        """The value, which must be an object."""
        if not isinstance(self.value, dict):
            self.fail("an object")
        return self.value

    def items(self, name: str, least: int = 0, most: int | None = None) -> list["Field"]:
        """The items of a list of `least` to `most`; `name` says what of."""
        items = self._list(name, least, most)
        return [Field(item, f"{self.path}[{index}]") for index, item in enumerate(items)]

    def integers(self, name: str, count: int, least: int, most: int) -> list[int]:
        """The `count` items of a list, which must be integers from `least` to `most`; for long lists."""
        items = self._list(name, count, count)
        for index, item in enumerate(items):
            if type(item) is not int or not least <= item <= most:
                Field(item, f"{self.path}[{index}]").fail(f"an integer from {least} to {most}")
        return items

    def _list(self, name: str, least: int, most: int | None) -> list[Any]:
        count = len(self.value) if isinstance(self.value, list) else -1
        if count < least or (most is not None and count > most):
            got = f"{count} of them" if count >= 0 else self._shown()
            raise FieldError(f"{self.path} must be a list of {_bounds(least, most)}{name}, got {got}")
        return list(self.value)

    def text(self) -> str:
        """The value, which must be a string."""
        if not isinstance(self.value, str):
            self.fail("a string")
        return self.value

    def identifier(self) -> str:
        """The value, which must be a name as of a method."""
        text = self.text()
        if not IDENTIFIER.fullmatch(text):
            self.fail("an identifier")
        return text

    def integer(self, least: int, most: int, rule: str) -> int:
        """The value, which must be an integer, neither true nor 1.0; `rule` names the bounds."""
        if type(self.value) is not int or not least <= self.value <= most:
            self.fail(rule)
        return int(self.value)

    def number(self, least: float = -MAX_FLOAT32, most: float = MAX_FLOAT32, rule: str = "") -> float:
        """The value, which must be a number that fits float32; `rule` names other bounds."""
        if type(self.value) not in (int, float) or not least <= self.value <= most:  # false for NaN, too
            self.fail(rule or "a finite float32 number")
        return float(self.value)

    def fraction(self) -> float:
        """The value, which must be a number between 0 and 1."""
        return self.number(0, 1, "a number between 0 and 1")

    def positive(self) -> float:
        """The value, which must be a number of at least 0 that fits float32."""
        return self.number(0, rule="a finite float32 number of at least 0")

    def fail(self, rule: str) -> NoReturn:
        """Raises FieldError: the value is not what `rule` says."""
        raise FieldError(f"{self.path or 'the document'} must be {rule}, got {self._shown()}")

    def _shown(self) -> str:
        text = json.dumps(self.value)
        return text if len(text) <= 60 else f"{text[:60]}..."


def _bounds(least: int, most: int | None) -> str:
    if most is None:
        return f"at least {least} " if least else ""
    return f"{least} " if least == most else f"at most {most} "
