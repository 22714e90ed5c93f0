"""Explain errors of the TorchScript compiler: the reason and the lines of the user's code."""

import linecache
import re

from lensbox.model.protocol_check import is_users

_PLACE = re.compile(r'^\s*File "(?P<file>.+)", line (?P<line>[0-9]+)', re.MULTILINE)
_MOST_PLACES = 4
_MOST_CHARACTERS = 500


def scripting_reason(error: Exception) -> str:
    """Return the compiler's reason, then the user's lines: the failing line and its callers.

    error: raised by `torch.jit.script` for the detector or a module around the detector.
    """
    text = str(error).strip()
    first = _PLACE.search(text)
    reason = " ".join((text[: first.start()] if first else text).split()).rstrip(":. ")
    if len(reason) > _MOST_CHARACTERS:
        reason = f"{reason[:_MOST_CHARACTERS]}..."
    places = ((match["file"], int(match["line"])) for match in _PLACE.finditer(text))
    lines = [
        f"{file}:{line}: {linecache.getline(file, line).strip()}"
        for file, line in dict.fromkeys(places)
        if is_users(file)
    ]
    return "\n  ".join([reason or type(error).__name__, *lines[:_MOST_PLACES]])
