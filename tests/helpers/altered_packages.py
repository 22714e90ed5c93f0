"""Changes of the entries of files of torch.export, for `damaged_files.rewritten`."""

import json
from collections.abc import Callable
from typing import Any

Change = Callable[[dict[str, bytes]], None]


def with_metadata(change: Callable[[dict[str, Any]], object]) -> Change:
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
