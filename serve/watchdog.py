"""Kills a process that does not end in time after SIGINT or SIGTERM. Started as a script by `ending`.

usage: watchdog.py PID SECONDS < PIPE

PIPE brings a byte for each signal that the process receives, its number, and ends with the process. After the
first of them the process may go on for SECONDS, after a second one for one second.
"""

import os
import select
import signal
import sys
import time

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def main(pid: int, seconds: float) -> None:
    """Returns when the process has ended or has been killed."""
    for number in ENDING_SIGNALS:  # sent to all processes of a service, they are not meant for this one
        signal.signal(number, signal.SIG_IGN)
    deadline = None
    while True:
        time_left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not select.select([0], [], [], time_left)[0]:
            os.kill(pid, signal.SIGKILL)
            return
        received = os.read(0, 64)
        if not received:
            return
        for byte in received:
            if byte not in ENDING_SIGNALS:
                continue
            if deadline is None:
                deadline = time.monotonic() + seconds
            else:
                deadline = min(deadline, time.monotonic() + 1.0)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
