"""Programs that tests run: to their end, without root's rights, in this process; the runner; a browser."""

import contextlib
import functools
import importlib.util
import os
import re
import resource
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

needs_wrk = pytest.mark.skipif(
    shutil.which("wrk") is None and "LENSBOX_REQUIRE_WRK" not in os.environ, reason="no wrk (apt: wrk)"
)
_PATIENCE = 600.0  # seconds; a build may take most of it

Ended = subprocess.CompletedProcess[str]
Lensbox = Callable[..., tuple[str, str]]  # runs a command, see the fixture `lensbox`


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
    return run_python("-m", "lensbox.cli", *arguments, **options)


def unprivileged(*command: str | Path) -> Sequence[str | Path]:
    """Return a command that obeys file modes even if root runs the tests."""
    if os.geteuid() != 0:
        return command
    # Root without the two rights to pass over modes.
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *command]


def load_example(name: str, monkeypatch: pytest.MonkeyPatch, *arguments: "str | Path") -> dict[str, Any]:
    """Return the names that `examples/NAME` defines, with the arguments that its `main` will read."""
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    return runpy.run_path(str(REPOSITORY / "examples" / name))


@contextlib.contextmanager
def memory_limit(size: int) -> Iterator[None]:
    """Let this process take no more than so many bytes besides those that it has."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def require_torchvision() -> None:
    """Skip the test if torchvision is missing or does not fit the installed torch."""
    try:
        import torch
        import torchvision  # noqa: F401

        torch.ops.torchvision.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
    except (ImportError, AttributeError, RuntimeError) as error:
        pytest.skip(f"needs torchvision: {error}")


# --- the built lensbox_runner, and what builds it ---


def built_runner() -> Path:
    """Return the runner in LENSBOX_RUNNER, or the runner of `make runner`. Fail the test if it is missing."""
    path = Path(os.environ.get("LENSBOX_RUNNER", REPOSITORY / "build" / "runner" / "lensbox_runner"))
    if not path.is_file():
        pytest.fail(f"{path} is missing: build it with `make runner`, or set LENSBOX_RUNNER")
    return path


@functools.cache
def runner_onnxruntime() -> str | None:
    """Return the version of onnxruntime in the built runner; None if it has none."""
    line = subprocess.run([built_runner(), "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r", onnxruntime (\S+)\)$", line)
    return None if found is None else found[1]


def path_with_build_tools() -> str:
    """Return a PATH with the programs of this Python's environment before the machine's."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


# --- Chromium, for tests of the page ---

# No connections to other hosts, and a fake camera.
CHROMIUM_OPTIONS = shlex.split(
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
    "--disable-background-networking --disable-component-update --use-fake-device-for-media-stream "
    "--use-fake-ui-for-media-stream"
)


def chromium_path() -> str | None:
    """Return the system's Chromium; None lets playwright use its own."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def missing_for_browser() -> str:
    """Return the program or package that tests in a browser lack; "" if none."""
    if importlib.util.find_spec("playwright") is None:
        return "the Python package playwright"
    own = (Path.home() / ".cache" / "ms-playwright").glob("chromium*")
    return "" if chromium_path() or any(own) else "Chromium (make browser)"
