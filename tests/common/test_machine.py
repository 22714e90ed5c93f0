"""`keep_freed_memory`: page faults of a process that frees and allocates large blocks."""

import os
import platform
import subprocess
import sys

import pytest

from lensbox.common import machine

# Write and free blocks of 16 MiB; print the number of page faults.
_PAGES = f"""
import importlib.util, resource, sys
specification = importlib.util.spec_from_file_location("freed_memory", {str(machine.__file__)!r})
module = importlib.util.module_from_spec(specification)
specification.loader.exec_module(module)
if sys.argv[1] == "keep":
    print(module.keep_freed_memory())
b"x" * (16 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    length = len(bytearray(b"x") * (16 << 20))
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _run(argument: str, tunables: str | None = None) -> list[str]:
    environment = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"}
    if tunables is not None:
        environment["GLIBC_TUNABLES"] = tunables
    command = [sys.executable, "-I", "-c", _PAGES, argument]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    return ran.stdout.split()


pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")


def test_pages_are_faulted_in_once() -> None:
    (before,) = _run("leave")
    kept, after = _run("keep")
    assert kept == "True"
    assert int(after) < 0.2 * int(before)


def test_keeps_the_user_s_tunables() -> None:
    assert _run("keep", "glibc.malloc.trim_threshold=1000000")[0] == "False"
