"""The words of TorchScript code, split as torch's own lexer splits them.

Where the two could differ, the code is refused. So this knows only what torch writes into a file: ASCII,
strings in double quotes on one line, decimal numbers, and no comments.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

# Beyond these, torch's recursive parser and compiler could run out of stack.
MAX_NESTING = 64
MAX_STATEMENT_SIGNS = 4000

_TOKEN = re.compile(
    r"""(?P<space>[ \n]+)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<number>[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?j?(?![A-Za-z0-9_]))
      | (?P<string>"([ !#-\[\]-~]|\\[ -~])*"(?!"))
      | (?P<sign>\.\.\.|\.(?![0-9])|[()\[\]{},:;=+\-*/%@<>!&|^~])""",
    re.VERBOSE,
)
# torch reads `not in` and `is not` before it looks where the second word ends.
_GLUED = {"not": "in", "is": "not"}


@dataclass(frozen=True)
class Token:
    """kind: 'name', 'number', 'string' (text with its quotes) or 'sign'; line: counted from 1."""

    kind: str
    text: str
    line: int


class UnreadableCodeError(ValueError):
    """The code is not as torch writes it."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason)
        self.line = line


def tokens(code: bytes) -> Iterator[Token]:
    """Yields the tokens of a file of TorchScript code. Raises UnreadableCodeError."""
    text = code.decode("latin-1")  # any byte is a character; those beyond ASCII match no token
    position, line, depth, signs = 0, 1, 0, 0
    previous = ""
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise UnreadableCodeError(
                f"it is not as torch writes it, from {text[position : position + 20]!r} on", line
            )
        position = match.end()
        kind, word = str(match.lastgroup), match[0]
        if kind == "space":
            line += word.count("\n")
            if depth == 0 and "\n" in word:
                signs = 0
            continue
        if previous in _GLUED and word.startswith(_GLUED[previous]) and word != _GLUED[previous]:
            raise UnreadableCodeError(f"torch would misread {previous!r} before {word!r}", line)
        if kind == "sign":
            signs += word != ","
            depth += (word in "([{") - (word in ")]}")
        elif word in ("if", "not", "and", "or"):
            signs += 1
        if depth > MAX_NESTING or signs > MAX_STATEMENT_SIGNS:
            raise UnreadableCodeError("a statement is nested too deeply or too long", line)
        previous = word
        yield Token(kind, word, line)
