"""What to do about the mistakes that TorchScript meets most often."""

import re
from typing import NamedTuple


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
