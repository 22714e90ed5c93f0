"""docs/troubleshooting.md quotes messages that exist."""

import ast
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = (REPOSITORY / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
MESSAGES = re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Return the texts in the code. Pieces of an f-string are joined, without the values between them."""
    found = []
    folders = [path.resolve() for path in (REPOSITORY / "src" / "lensbox").iterdir()]
    for path in (path for folder in folders for path in folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                values = [value.value for value in node.values if isinstance(value, ast.Constant)]
                found.append("".join(str(value) for value in values))
    found += [path.read_text(encoding="utf-8") for path in (REPOSITORY / "ops").rglob("*.cmake")]
    # C++ joins the pieces of a text that goes on in the next line.
    sources = (REPOSITORY / "cpp_runtime" / "src").rglob("*.cpp")
    return found + [re.sub(r'"\s+"', "", path.read_text(encoding="utf-8")) for path in sources]


@pytest.mark.parametrize("message", MESSAGES)
def test_quoted_message_exists(message: str, texts: list[str]) -> None:
    message = message.replace("lensbox.json", "")  # named by a constant
    assert any(message in text for text in texts)


def test_finds_messages() -> None:
    assert len(MESSAGES) > 12
