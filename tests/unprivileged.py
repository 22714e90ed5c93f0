"""Running Python as those do who may not read every file, as root may."""

import os
import subprocess
import sys

# Root without the two rights to pass over the modes of files.
_DROP = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]


def run_unprivileged(program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Runs a program in Python with these arguments. Modes of files hold for it whoever runs the tests."""
    drop = _DROP if os.geteuid() == 0 else []
    command = [*drop, sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
