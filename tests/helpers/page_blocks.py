"""Code blocks of a page, for the tests that run them."""

import re
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[2]


class Block(NamedTuple):
    """A block between ``` and ```: its language and its text."""

    language: str
    text: str


def read_blocks(page: str) -> list[Block]:
    """Return all blocks of a page, named by its path in the repository."""
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    return [Block(*found) for found in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]


def commands(console: str) -> list[tuple[str, str]]:
    """Return each command of a console block with the output that is shown."""
    return re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", console, re.MULTILINE)


def without_figures(text: str) -> list[str]:
    """Return the lines with N for each number, version and hash, and with single spaces."""
    text = re.sub(r"\b[0-9a-f]{12,}\b|\d+(?:\.\d+)*(?:e[+-]?\d+)?", "N", text)
    return [" ".join(line.split()) for line in text.splitlines()]


def assert_prints(printed: str, shown: str) -> None:
    """Assert that the shown lines are printed in this order, up to numbers; … allows other lines."""
    wanted, lines = without_figures(shown), without_figures(printed)
    if "…" not in wanted:
        assert lines == wanted
        return
    rest = iter(lines)
    for line in wanted:
        assert line == "…" or line in rest, f"{line!r} is not in its place in:\n{printed}"
