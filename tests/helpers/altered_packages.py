"""Changes of the entries of artifacts, for `damaged_files.rewritten`, and of values in `lensbox.json`."""

import copy
import json
from collections.abc import Callable
from typing import Any

Change = Callable[[dict[str, bytes]], None]
Values = dict[str, Any]


def put(path: str, value: Any) -> Callable[[Values], None]:
    """Set the value at a path such as 'self_test.expected.labels.0'."""

    def change(values: Any) -> None:
        *parents, last = path.split(".")
        for key in parents:
            values = values[int(key) if isinstance(values, list) else key]
        values[int(last) if isinstance(values, list) else last] = copy.deepcopy(value)

    return change


def remove(path: str) -> Callable[[Values], None]:
    def change(values: Any) -> None:
        *parents, last = path.split(".")
        for key in parents:
            values = values[key]
        del values[last]

    return change


def with_metadata(change: Callable[[Values], object]) -> Change:
    def apply(entries: dict[str, bytes]) -> None:
        (name,) = (name for name in entries if name.endswith("/extra/lensbox.json"))
        document = json.loads(entries[name])
        change(document)
        entries[name] = json.dumps(document).encode()

    return apply


def compiled_for(**values: object) -> Change:
    return with_metadata(lambda document: document["compiled"].update(values))


def without(ending: str) -> Change:
    def apply(entries: dict[str, bytes]) -> None:
        names = [name for name in entries if name.endswith(ending)]
        assert names
        for name in names:
            del entries[name]

    return apply


def no_machine_code(entries: dict[str, bytes]) -> None:
    """Replace the libraries by a text, which the linker refuses."""
    entries.update({name: b"no machine code" for name in entries if name.endswith(".so")})
