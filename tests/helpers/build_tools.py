"""CMake and Ninja for tests that compile."""

import os
import sys
from pathlib import Path


def path_with_build_tools() -> str:
    """A PATH on which they are: first of this Python's environment, then of the machine."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
