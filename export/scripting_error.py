"""What TorchScript's compiler says of code that it cannot compile, in a few lines, with advice."""

import inspect
import linecache
import re
from typing import Any

from torch import nn

from lensbox.export.foreign_values import places_of_values
from lensbox.export.scripting_hints import hint_for
from lensbox.model.protocol_check import is_users

_PLACE = re.compile(r'^\s*File "(?P<file>.+)", line (?P<line>[0-9]+)', re.MULTILINE)
_FORM = re.compile(r"^\s*(?P<schema>(?P<operator>[\w:]+)(\.\w+)?\(.*\) -> .*):$", re.MULTILINE)
_NO_WEAK_REFERENCE = re.compile(r"cannot create weak reference to '(?P<kind>[\w.]+)' object")
_MOST_PLACES = 4
_MOST_CHARACTERS = 500

_Place = tuple[str, int]


def scripting_reason(error: Exception, detector: nn.Module) -> str:
    """The compiler's reason, the line of the user's code that it concerns, those that lead there, and a hint.

    error: as raised by `torch.jit.script` for the detector or a module around it.
    """
    text = str(error).strip()
    first = _PLACE.search(text)
    reason = _one_line(text[: first.start()] if first else text) or type(error).__name__
    places = _places(text)
    if first is None or not is_users(first["file"]):
        places = list(dict.fromkeys([*_places_of_calls(error), *places]))
    places = places or _places_of_values(text, detector) or _definition(detector)
    lines = [f"{file}:{line}: {linecache.getline(file, line).strip()}" for file, line in places]
    hint = hint_for(reason, lines[0] if lines else "")
    return "\n  ".join([reason, *lines[:_MOST_PLACES], *([hint] if hint else [])])


def _one_line(reason: str) -> str:
    """Of all the forms of an operator that did not fit, the first stands for the rest."""
    forms = list(_FORM.finditer(reason))
    if len(forms) > 1:
        rest = reason[forms[0].end() : forms[1].start()].strip().splitlines()[0]
        reason = (
            f"none of the {len(forms)} forms of {forms[0]['operator']} takes these arguments; "
            f"{forms[0]['schema']}: {rest}"
        )
    reason = " ".join(reason.split()).rstrip(":. ")
    return reason if len(reason) <= _MOST_CHARACTERS else f"{reason[:_MOST_CHARACTERS]}..."


def _places(text: str) -> list[_Place]:
    """Those of the user's code, each once."""
    found = ((match["file"], int(match["line"])) for match in _PLACE.finditer(text))
    return list(dict.fromkeys(place for place in found if is_users(place[0])))


def _places_of_calls(error: Exception) -> list[_Place]:
    """Where the user's code called what could not be compiled: torch's frames know, its message does not."""
    places: list[_Place] = []
    trace = error.__traceback__
    while trace is not None:
        called_at: Any = trace.tb_frame.f_locals.get("loc")
        if trace.tb_frame.f_code.co_name == "try_compile_fn" and hasattr(called_at, "highlight"):
            places += _places(called_at.highlight())
        trace = trace.tb_next
    return list(dict.fromkeys(reversed(places)))


def _places_of_values(text: str, detector: nn.Module) -> list[_Place]:
    """Where the user's code names a value that torch cannot even look up, telling only its kind."""
    match = _NO_WEAK_REFERENCE.search(text)
    return places_of_values(detector, match["kind"]) if match else []


def _definition(detector: nn.Module) -> list[_Place]:
    """Where `detect` begins, for reasons without a place of their own."""
    try:
        method: Any = inspect.getattr_static(detector, "detect")
        return [(inspect.getfile(method), inspect.getsourcelines(method)[1])]
    except (AttributeError, OSError, TypeError):  # no source, such as a class made in an interpreter
        return []
