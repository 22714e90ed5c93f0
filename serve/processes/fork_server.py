"""Set up the fork server, which preloads this module: ignore Ctrl+C, and end with the supervisor.

Ctrl+C reaches every process of a terminal; only the supervisor handles it. Without `end_with_parent`, the
fork server would live as long as any of its children.
"""

import signal

from lensbox.serve.processes.child import end_with_parent

signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # the supervisor started it with SIGINT blocked
end_with_parent()
