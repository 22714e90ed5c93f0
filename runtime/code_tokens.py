"""The words of TorchScript code, split as torch's own lexer splits them.

Where the two could differ, the code is refused. So this knows only what torch writes into a file: ASCII,
strings in double quotes on one line, decimal numbers, and no comments.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

# torch parses and compiles recursively. It runs out of stack somewhere above 4,000 of any of these.
MAX_BRACKETS = 64
MAX_DEPTH = 2000
MAX_INDENTATION = 400
MAX_ELIFS = 2000  # in a file; each is an `if` inside the one before

_TOKEN = re.compile(
    r"""(?P<space>[ \n]+)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<number>[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?j?(?![A-Za-z0-9_]))
      | (?P<string>"[ !#-\[\]-~]*(?:\\[ -~][ !#-\[\]-~]*)*"(?!"))
      | (?P<sign>\.\.\.|\.(?![0-9])|[()\[\]{},:;=+\-*/%@<>!&|^~])""",
    re.VERBOSE,
)
_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")
_DEEPER = ("if", "not", "and", "or")
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
    position, line, previous = 0, 1, ""
    depth = _Depth()
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
            begun = word.split("\n")[match.start() > 0 :]  # the first line begins with the file
            fits = all(depth.start_line(len(indentation)) for indentation in begun)
        elif previous in _GLUED and word.startswith(_GLUED[previous]) and word != _GLUED[previous]:
            raise UnreadableCodeError(f"torch would misread {previous!r} before {word!r}", line)
        else:
            fits = depth.add(word)
        if not fits:
            raise UnreadableCodeError("it is nested too deeply", line)
        if kind != "space":
            previous = word
            yield Token(kind, word, line)


class _Depth:
    """An upper bound of how deep the tree of the current statement is.

    Every operator, dot and bracket makes it deeper, whatever its precedence; items between commas lie side by
    side. Each open bracket has the depth of its current item and of its deepest one.
    """

    def __init__(self) -> None:
        self.levels = [[0, 0]]
        self.elifs = 0

    def start_line(self, indentation: int) -> bool:
        """Whether the line that begins may be indented so far."""
        if len(self.levels) == 1:
            self.levels = [[0, 0]]
        return indentation <= MAX_INDENTATION

    def add(self, word: str) -> bool:
        """Whether the statement, continued by this token, stays within the bounds."""
        level = self.levels[-1]
        self.elifs += word == "elif"
        if word in _OPENING:
            self.levels.append([0, 0])
        elif word in _CLOSING and len(self.levels) > 1:
            self.levels.pop()
            self.levels[-1][0] += 1 + max(level)
        elif word == ",":
            level[:] = 0, max(level)
        elif word in _DEEPER or not (word[0].isalnum() or word[0] in '_"'):
            level[0] += 1
        return (
            len(self.levels) <= MAX_BRACKETS and self.levels[-1][0] <= MAX_DEPTH and self.elifs <= MAX_ELIFS
        )
