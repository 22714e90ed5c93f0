"""What TorchScript's compiler says of code that it cannot compile, in a few lines."""

import inspect
import linecache
import re
from typing import Any

from torch import nn

from lensbox.model.protocol_check import is_users

_PLACE = re.compile(r'^\s*File "(?P<file>.+)", line (?P<line>[0-9]+)', re.MULTILINE)
_MOST_PLACES = 4


def scripting_reason(error: Exception, detector: nn.Module) -> str:
    """The compiler's reason, then the line of the user's code that it concerns, and those that lead there.

    error: as raised by `torch.jit.script` for the detector or a module around it.
    """
    text = str(error).strip()
    first = _PLACE.search(text)
    reason = " ".join((text[: first.start()] if first else text).split()).rstrip(":. ")
    places = dict.fromkeys(
        (match["file"], int(match["line"])) for match in _PLACE.finditer(text) if is_users(match["file"])
    )
    if not places:
        places = dict.fromkeys(_definition(detector))
    shown = [f"{file}:{line}: {linecache.getline(file, line).strip()}" for file, line in places]
    return "\n  ".join([reason or type(error).__name__, *shown[:_MOST_PLACES]])


def _definition(detector: nn.Module) -> list[tuple[str, int]]:
    """Where `detect` begins, for reasons without a place of their own."""
    try:
        method: Any = inspect.getattr_static(detector, "detect")
        return [(inspect.getfile(method), inspect.getsourcelines(method)[1])]
    except (AttributeError, OSError, TypeError):  # no source, such as a class made in an interpreter
        return []
