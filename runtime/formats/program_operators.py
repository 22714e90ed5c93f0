"""The operators that a program may call: the table `ops/csrc/program_operators.inc`, and the caller's own."""

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch

import lensbox.ops
from lensbox.common.errors import ArtifactError
from lensbox.runtime.formats.program_schema import GraphError
from lensbox.runtime.op_library import is_of_named_library

Function = Callable[..., Any]  # torch._ops.OpOverload, or a calculation with sizes

_MODULES = {"_operator": operator, "torch": torch, "math": math}  # of calculations with sizes
_CONSTANTS = {"False": False, "0": 0}


@functools.cache
def _table() -> Mapping[str, list[str]]:
    """Return the words of the table by operator."""
    text = (Path(lensbox.ops.__file__).parent / "csrc" / "program_operators.inc").read_text(encoding="utf-8")
    words: dict[str, list[str]] = {}
    for line in text.splitlines()[1:-1]:
        for word in () if line.startswith("#") else line.split():
            words.setdefault(word.partition("(")[0].partition("->")[0], []).append(word)
    return words


@functools.cache
def _closed_namespaces() -> frozenset[str]:
    """Return the namespaces whose operators the table alone allows."""
    return frozenset(name.partition("::")[0] for name in _table() if "::" in name)


def require_allowed(name: str) -> None:
    """Raise GraphError unless the table has an operator, or leaves it to the caller's libraries."""
    if name not in _table() and ("::" not in name or name.partition("::")[0] in _closed_namespaces()):
        raise GraphError(f"a program must not call {name}: docs/programs.md says which operators it may")


def operator_name(target: str) -> str:
    """Return the name in the table of a node's target: "aten::add.Tensor" for "torch.ops.aten.add.Tensor"."""
    if not target.startswith("torch.ops."):
        return target
    parts = target.split(".")[2:]
    if len(parts) != 3:
        raise GraphError(f"a program must not call {target}, which is no operator but a subgraph or alike")
    namespace, name, overload = parts
    return f"{namespace}::{name}" + ("" if overload == "default" else f".{overload}")


def find_operator(name: str) -> Function:
    """Return the function that a program's operator stands for. name: as `operator_name` returns it.

    Raise GraphError if the operator is neither in the table nor of a library that the caller named, or is
    not registered.
    """
    require_allowed(name)
    if "::" not in name:
        module, _, function = name.partition(".")
        found: Function = getattr(_MODULES[module], function)
        return found
    words = _table().get(name)
    if words is None and not is_of_named_library(name):
        raise GraphError(
            f"a program must not call {name}, as no library that you named holds it: load its library with "
            "--ops FILE (load_artifact(path, ops=[FILE]))"
        )
    called = name if words is None else words[0].rpartition("->")[2].partition("(")[0]
    namespace, _, rest = called.partition("::")
    function, _, overload = rest.partition(".")
    op: Any = getattr(getattr(torch.ops, namespace), function, None)
    op = getattr(op, overload or "default", None)
    if not isinstance(op, torch._ops.OpOverload):
        raise GraphError(f"the operator {called} is not registered")
    return cast(Function, op)


def check_arguments(name: str, arguments: Mapping[str, object]) -> None:
    """Raise GraphError unless the arguments obey the table. arguments: all of the schema, by name."""
    rules = [word[len(name) + 1 : -1] for word in _table().get(name, ()) if word.startswith(f"{name}(")]
    if rules and not any(all(_holds(part, arguments) for part in rule.split(",")) for rule in rules):
        raise GraphError(f"a program must not call {name} but with {' or '.join(rules)}")


def _holds(rule: str, arguments: Mapping[str, object]) -> bool:
    if "<=" in rule:
        name, _, limit = rule.partition("<=")
        found = arguments[name]
        numbers = found if isinstance(found, (list, tuple)) else [found]
        return all(type(number) is int and number <= int(limit) for number in numbers)
    name, _, constant = rule.partition("=")
    found = arguments[name]
    return (
        found is None
        if constant == "None"
        else type(found) in (bool, int, float) and found == _CONSTANTS[constant]
    )


# --- what torch does not check, and would read beyond tensors ---


def _require_rows(key: torch.Tensor, value: torch.Tensor) -> None:
    if key.dim() < 2 or value.dim() < 2 or key.shape[-2] != value.shape[-2]:
        raise ArtifactError(
            "keys and values of attention must have the same rows, got "
            f"{list(key.shape)} and {list(value.shape)}"
        )


def _require_channels(images: torch.Tensor, *parameters: torch.Tensor | None) -> None:
    for values in parameters:
        if images.dim() < 2 or (values is not None and list(values.shape) != [images.shape[1]]):
            raise ArtifactError("parameters of a batch norm must have one number for each channel")


# By operator: the check, and the names of its arguments.
GUARDS: Mapping[str, tuple[Function, Sequence[str]]] = {
    "aten::scaled_dot_product_attention": (_require_rows, ("key", "value")),
    "aten::_native_batch_norm_legit_no_training": (
        _require_channels,
        ("input", "weight", "bias", "running_mean", "running_var"),
    ),
}
