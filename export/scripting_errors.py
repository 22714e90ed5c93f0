"""Explain what TorchScript cannot compile: the compiler's reason, the user's line and advice."""

import ast
import inspect
import linecache
import re
import textwrap
from collections.abc import Iterator
from types import FunctionType
from typing import Any, NamedTuple

from torch import nn

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
    """Keep only the first of all forms of an operator that did not fit."""
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
    """Return the frames of the user's code, each once."""
    found = ((match["file"], int(match["line"])) for match in _PLACE.finditer(text))
    return list(dict.fromkeys(place for place in found if is_users(place[0])))


def _places_of_calls(error: Exception) -> list[_Place]:
    """Return the line of the user's code that called what could not be compiled, from torch's frames."""
    places: list[_Place] = []
    trace = error.__traceback__
    while trace is not None:
        called_at: Any = trace.tb_frame.f_locals.get("loc")
        if trace.tb_frame.f_code.co_name == "try_compile_fn" and hasattr(called_at, "highlight"):
            places += _places(called_at.highlight())
        trace = trace.tb_next
    return list(dict.fromkeys(reversed(places)))


def _definition(detector: nn.Module) -> list[_Place]:
    """Return the first line of `detect`, for errors without a line of their own."""
    try:
        method: Any = inspect.getattr_static(detector, "detect")
        return [(inspect.getfile(method), inspect.getsourcelines(method)[1])]
    except (AttributeError, OSError, TypeError):  # no source, such as a class made in an interpreter
        return []


def _places_of_values(text: str, module: nn.Module) -> list[_Place]:
    """Return each line of the user's code that names a global value which torch cannot look up.

    Search the methods of the module and of those inside it. text: the error, which names the kind of the
    value, such as 'numpy.ufunc'.
    """
    match = _NO_WEAK_REFERENCE.search(text)
    if not match:
        return []
    places = []
    for method in python_methods(module):
        if not is_users(method.__code__.co_filename):
            continue
        try:
            lines, start = inspect.getsourcelines(method)
            tree = ast.parse(textwrap.dedent("".join(lines)))
        except (OSError, SyntaxError):  # no source, or a method within an expression
            continue
        for node in ast.walk(tree):
            if isinstance(node, (ast.Attribute, ast.Name)) and _kind_of(node, method) == match["kind"]:
                places.append((method.__code__.co_filename, start + node.lineno - 1))
    return list(dict.fromkeys(places))


def python_methods(module: nn.Module) -> Iterator[FunctionType]:
    """Yield the Python methods of the module, of its base classes, and of all modules inside it."""
    classes = dict.fromkeys(base for part in module.modules() for base in type(part).__mro__)
    for kind in classes:
        yield from (member for member in vars(kind).values() if isinstance(member, FunctionType))


def _kind_of(node: ast.Attribute | ast.Name, method: FunctionType) -> str:
    """Return the kind of the value of an expression such as `np.max`, '' if its root is no global."""
    names = []
    expression: ast.expr = node
    while isinstance(expression, ast.Attribute):
        names.append(expression.attr)
        expression = expression.value
    if not isinstance(expression, ast.Name) or expression.id not in method.__globals__:
        return ""
    value: Any = method.__globals__[expression.id]
    for name in reversed(names):
        value = getattr(value, name, None)
    return f"{type(value).__module__}.{type(value).__qualname__}"


class _Hint(NamedTuple):
    """reason, line: patterns of what the compiler says, and of the code; advice: with groups of `reason`."""

    reason: str
    advice: str
    line: str = ""


_HINTS = (
    _Hint(
        "has no attribute or method '(?P<name>.+?)'",
        "TorchScript has no super(): give the base's method a name of its own, and call self.THAT_NAME(...)",
        line=r"super\(",
    ),
    _Hint(
        r"has no attribute 'specification'",
        "keep what you need of it in __init__: self.height = self.specification.height",
    ),
    _Hint(
        r"method 'numpy'|reference to 'numpy\.",
        "numpy is not compiled: use torch's functions",
    ),
    _Hint(
        r"has no attribute '(?P<name>\w+)' .*'numpy\.ndarray'",
        'make it a tensor: self.register_buffer("{name}", torch.from_numpy(...))',
    ),
    _Hint(
        r"argument '(?P<name>\w+)' but instead found type '(?P<type>.+?)'.* was not annotated",
        "annotate the argument with its type, {type}",
    ),
    _Hint(
        r"previously matched to type Tensor|Empty lists default",
        "an empty list is one of tensors unless it is annotated: sizes: list[int] = []",
    ),
    _Hint(
        r"has no attribute '(?P<name>\w+)' .*must have consistent type",
        "all values of a dict or list must have one type: make {name} several attributes",
    ),
    _Hint(
        r"Parametrization is not working",
        'compute the weights before: torch.nn.utils.parametrize.remove_parametrizations(layer, "weight")',
    ),
    _Hint(r"JoinedStr", "an f-string may hold plain {{values}} alone, without =, ! and formats"),
    _Hint(r"function definitions|Lambda", "make it a method, or a function of the file"),
    _Hint(r"single top-level function", "make it a function of the file, with def, or a method"),
    _Hint(
        r"variable number of arguments",
        "*args, **kwargs and the like are not compiled: name all arguments",
        line=r"\bdef ",
    ),
    _Hint(r"variable number of arguments", "what this line calls is not compiled: use another function"),
    _Hint(r"try blocks", "ask before, with if: exceptions are not caught in TorchScript"),
    _Hint(
        r"python value of type '\w+' cannot be used", "make it an attribute of the module, set in __init__"
    ),
)


def hint_for(reason: str, line: str) -> str:
    """One sentence of advice for a reason of the compiler and the line of code that it names, or ''."""
    for hint in _HINTS:
        match = re.search(hint.reason, reason)
        if match and re.search(hint.line, line):
            return hint.advice.format(**match.groupdict())
    return ""
