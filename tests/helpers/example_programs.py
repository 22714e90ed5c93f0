"""The programs in examples/, called in the process of the test."""

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

_EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def load_example(name: str, monkeypatch: pytest.MonkeyPatch, *arguments: "str | Path") -> dict[str, Any]:
    """Return the names that `examples/NAME` defines, with the arguments that its `main` will read."""
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    return runpy.run_path(str(_EXAMPLES / name))
