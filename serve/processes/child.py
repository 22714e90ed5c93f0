"""What the processes that the supervisor starts have in common."""

import logging
import os
import sys
from pathlib import Path
from typing import NoReturn

from lensbox.serve.observability.logs import LogStyle
from lensbox.serve.processes.parent_death import end_with_parent


def begin_child(name: str, log: LogStyle) -> None:
    """Ends this process with its parent, however that ends; leaves Ctrl+C to the supervisor.

    name: for ps and top, at most 15 letters.
    """
    Path("/proc/self/comm").write_text(name)
    os.setsid()
    end_with_parent()
    log.start()


def end_child(code: int) -> NoReturn:
    """Ends the process without waiting for its threads."""
    logging.shutdown()
    sys.stderr.flush()
    os._exit(code)
