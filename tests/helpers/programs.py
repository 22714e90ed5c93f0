"""Programs that tests run to their end."""

import os
import subprocess
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_PATIENCE = 600.0  # seconds; a build may take most of it

Ended = subprocess.CompletedProcess[str]


def run(
    *command: object, code: int | None = 0, env: Mapping[str, str] = MappingProxyType({}), **options: Any
) -> Ended:
    """Run a program, check its exit code, and return its output as text.

    code: None accepts any. env: variables besides this process's. options: of `subprocess.run`.
    """
    environment = {**os.environ, **env}
    line = [str(word) for word in command]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "timeout": _PATIENCE}
    ended: Ended = subprocess.run(line, env=environment, check=False, **{**streams, **options})
    assert code in (None, ended.returncode), (line, ended.returncode, ended.stdout, ended.stderr)
    return ended


def run_python(*arguments: object, **options: Any) -> Ended:
    """Run this Python: `-c CODE`, `-m MODULE` or a file, and its arguments."""
    return run(sys.executable, *arguments, **options)


def run_lensbox(*arguments: object, **options: Any) -> Ended:
    """Run the command `lensbox` in a new process."""
    return run_python("-m", "lensbox.common", *arguments, **options)
