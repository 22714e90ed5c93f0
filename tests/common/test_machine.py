"""`keep_freed_memory`: page faults of a process that frees and allocates large blocks."""

import platform

import pytest
from programs import run_python

# Write and free blocks of 16 MiB; print the number of page faults.
_PAGES = """
import resource, sys
from lensbox.common.machine import keep_freed_memory
assert sys.argv[1] == "leave" or keep_freed_memory()
b"x" * (16 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    length = len(bytearray(b"x") * (16 << 20))
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_pages_are_faulted_in_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    before, after = (int(run_python("-c", _PAGES, how).stdout) for how in ("leave", "keep"))
    assert after < 0.2 * before
