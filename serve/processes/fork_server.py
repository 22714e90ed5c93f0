"""What the fork server imports first: it ends with the supervisor, and its processes end with it.

On its own it would live as long as one of them. Ctrl+C, which comes to every process of a terminal, is the
supervisor's. For that process alone: importing this is all it takes.
"""

import signal

from lensbox.serve.processes.parent_death import end_with_parent

signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # it was started with it blocked
end_with_parent()
