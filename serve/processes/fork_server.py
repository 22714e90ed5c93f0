"""Set up the fork server, which preloads this module: ignore Ctrl+C, and end with the supervisor.

Ctrl+C and SIGHUP reach every process of a terminal; only the supervisor handles them. Without
`end_with_parent`, the fork server would live as long as any of its children.
"""

import os
import signal

from lensbox.serve.processes.child import SUPERVISOR, end_with_parent

for number in (signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGHUP})  # blocked at the start
end_with_parent()
if os.environ.get(SUPERVISOR) != str(os.getppid()):  # killed before that call
    os.kill(os.getpid(), signal.SIGKILL)
