"""Preloaded by the fork server: importing this module makes it ignore Ctrl+C and end with the supervisor.

Ctrl+C reaches every process of a terminal, and is handled by the supervisor. Without `end_with_parent`, the
fork server would live as long as any of its children.
"""

import signal

from lensbox.serve.processes.child import end_with_parent

signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # the supervisor started it with SIGINT blocked
end_with_parent()
