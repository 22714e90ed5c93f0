"""Whether an artifact's code uses only what a detector needs, judged before torch compiles or runs it.

TorchScript reaches operators in four ways: `torch.NAME`, `ops.NAMESPACE.NAME`, `value.NAME(...)`, where any
operator can be called like a method, and `getattr(value, "NAME")`. All are checked by their names alone.
They and `__torch__` may not be used in another form, since `t = torch` would give them another name.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from lensbox.runtime.code_tokens import Token, UnreadableCodeError, tokens
from lensbox.runtime.op_library import op_name, registered_schemas

_END = Token("sign", "", 0)
# What else TorchScript's importer knows by name, and what starts tasks on other threads.
_REFUSED_NAMES = ("fork", "awaitable")


class ForeignCodeError(ValueError):
    """The code uses what no detector needs."""


def check_code(entry: str, code: bytes, declared_ops: Sequence[str]) -> None:
    """Checks one `code/*.py` entry of an artifact.

    declared_ops: the schemas that the artifact's metadata declares; they may be called, unless they lie in a
    namespace of torch's own. Raises ForeignCodeError, naming entry, line and operator.
    """
    try:
        words = [*tokens(code), _END, _END, _END, _END, _END]
    except UnreadableCodeError as error:
        raise ForeignCodeError(f"{entry}, line {error.line}: {error}") from error
    declared = {op_name(schema) for schema in declared_ops}
    previous = _END
    for index, word in enumerate(words):
        if word.kind == "name":
            reason = _objection(words[index : index + 5], previous.text == ".", declared)
            if reason:
                raise ForeignCodeError(f"{entry}, line {word.line}: {reason}")
            if word.text == "getattr":
                reason = _objection_to_getattr(words, index)
                if reason:
                    raise ForeignCodeError(f"{entry}, line {word.line}: {reason}")
        previous = word


def _objection(words: Sequence[Token], after_dot: bool, declared: set[str]) -> str:
    """What is wrong with the name `words[0]`, given the four words after it; '' where nothing is."""
    name, first, second, third, fourth = (word.text for word in words)
    if after_dot:
        return _objection_to_attribute(name)
    if name in _REFUSED_NAMES:
        return f"it uses {name}"
    if name == "torch":
        if first != "." or words[2].kind != "name":
            return "it uses torch other than as torch.NAME"
        return "" if f"aten::{second}" in _allowed_ops() else f"it uses torch.{second}"
    if name == "ops":
        if first != "." or third != "." or words[4].kind != "name":
            return "it uses ops other than as ops.NAMESPACE.NAME"
        return "" if _may_call(second, fourth, declared) else f"it uses ops.{second}.{fourth}"
    if name == "__torch__":
        return _objection_to_class(first, second, third, fourth)
    return ""


def _objection_to_class(first: str, second: str, third: str, fourth: str) -> str:
    """The file's own classes are `__torch__.PATH`, torch's C++ classes `__torch__.torch.classes.PATH`."""
    if first != "." or (second == "torch" and third != "."):
        return "it uses __torch__ other than as the start of a name"
    if second == "torch" and fourth == "classes":
        return "it uses __torch__.torch.classes, torch's own C++ classes"
    return ""


def _objection_to_attribute(name: str) -> str:
    operator = f"aten::{name}"
    if operator not in _allowed_ops() and registered_schemas(operator):
        return f"it uses .{name}, which may call torch.{name}"
    return ""


def _objection_to_getattr(words: Sequence[Token], index: int) -> str:
    """torch writes `getattr(value, "0")` for attributes whose name is no identifier."""
    form = 'it uses getattr other than as getattr(value, "NAME")'
    if words[index + 1].text != "(":
        return form
    depth = 0
    for end in range(index + 1, len(words)):
        depth += (words[end].text in ("(", "[", "{")) - (words[end].text in (")", "]", "}"))
        if depth == 0:
            break
    comma, name = words[end - 2], words[end - 1]
    if comma.text != "," or name.kind != "string" or "\\" in name.text:
        return form
    return _objection_to_attribute(name.text[1:-1])


def _may_call(namespace: str, name: str, declared: set[str]) -> bool:
    operator = f"{namespace}::{name}"
    if name == "autograd":
        return False  # a second name of torch itself
    if namespace in _torch_namespaces():
        return operator in _allowed_ops()
    return namespace == "lensbox" or operator in declared


@cache
def _allowed_ops() -> frozenset[str]:
    return _names("allowed_ops.txt")


@cache
def _torch_namespaces() -> frozenset[str]:
    return _names("torch_namespaces.txt")


def _names(file: str) -> frozenset[str]:
    lines = Path(__file__).with_name(file).read_text(encoding="ascii").splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))
