"""Shared by tests of the program: the types of their fixtures, and the outcome of a run."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from damaged_files import seal
from torch import nn

from lensbox.runtime.torchscript import quiet_torchscript


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


def save_script(module: nn.Module, path: Path, **options: Any) -> Path:
    """Compile, save and seal a module; torch.jit.save takes the options."""
    with quiet_torchscript():
        torch.jit.save(torch.jit.script(module), path, **options)
    seal(path)
    return path


Run = Callable[..., Completed]
Start = Callable[..., Any]
Rewrite = Callable[[Callable[[dict[str, Any]], object]], Path]
SaveStandIn = Callable[[nn.Module], Path]
