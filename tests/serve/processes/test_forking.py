"""Forked processes: signals, failures, the end with the supervisor. `test_supervisor.py` has their files."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from waiting import PATIENCE

# In a process of its own, because pytest's has threads.
_BEGIN = """
import json, os, signal, time
from lensbox.serve.observability.logs import start_log
from lensbox.serve.processes.forking import fork
start_log("info", "text")
started = lambda main: fork("lensbox-test", "test-0", main)
"""


def run(code: str, folder: Path) -> tuple[Any, str]:
    """Run code; return what it prints as JSON, and its log."""
    command = [sys.executable, "-c", _BEGIN + code]
    variables = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(folder)}
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE, env=variables, check=True)
    return json.loads(done.stdout), done.stderr.decode()


def test_a_signal_at_once_does_not_run_the_supervisors_handler(tmp_path: Path) -> None:
    code = """
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: print("handled", flush=True))
codes = []
for _ in range(20):
    pid, pipe = started(lambda pipe: time.sleep(3600))
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        os.kill(pid, number)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print(json.dumps(codes))
"""
    codes, _ = run(code, tmp_path)
    assert codes == [-15] * 20


def test_a_failure_is_logged(tmp_path: Path) -> None:
    code = """
pid, pipe = started(lambda pipe: 1 / 0)
print(json.dumps(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
"""
    exit_code, log = run(code, tmp_path)
    assert exit_code == 1
    assert "CRITICAL: lensbox-test ends" in log
    assert "ZeroDivisionError" in log


@pytest.mark.parametrize("seconds", [0, 0.2])
def test_a_process_ends_with_the_supervisor(tmp_path: Path, seconds: float) -> None:
    """At once, too: it may have ended before the new process runs. `run` waits for all that may print."""
    code = f"""
for _ in range(3):
    started(lambda pipe: time.sleep(3600))
time.sleep({seconds})
print(1, flush=True)
os._exit(0)
"""
    assert run(code, tmp_path) == (1, "")
