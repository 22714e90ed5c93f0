"""Finds where the code of a module names values of another library."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from torch import nn

from lensbox.model.protocol_check import is_users


def places_of_values(module: nn.Module, kind: str) -> list[tuple[str, int]]:
    """File and line of each global value of a kind, such as 'numpy.ufunc', in the user's code.

    Looked for in the methods of the module and of those inside it.
    """
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
            if isinstance(node, (ast.Attribute, ast.Name)) and _kind_of(node, method) == kind:
                places.append((method.__code__.co_filename, start + node.lineno - 1))
    return list(dict.fromkeys(places))


def python_methods(module: nn.Module) -> Iterator[FunctionType]:
    """Those of the module, of its base classes, and of all modules inside it."""
    classes = dict.fromkeys(base for part in module.modules() for base in type(part).__mro__)
    for kind in classes:
        yield from (member for member in vars(kind).values() if isinstance(member, FunctionType))


def _kind_of(node: ast.Attribute | ast.Name, method: FunctionType) -> str:
    """Of what kind the value of an expression such as `np.max` is, '' where its root is no global."""
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
