"""Shared by tests of the program: the types of their fixtures, and the outcome of a run."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class Completed:
    """The outcome of one run of the program."""

    code: int
    stdout: str
    stderr: str

    def json(self) -> Any:
        """The document on stdout, after checking that it is the only thing there."""
        assert self.stdout.endswith("\n"), self.stderr
        assert self.stdout.count("\n") == 1, self.stdout
        return json.loads(self.stdout, parse_constant=pytest.fail)


Run = Callable[..., Completed]
Start = Callable[..., Any]
Rewrite = Callable[[Callable[[dict[str, Any]], object]], Path]
