"""Keeps torch's profiler from talking."""

import os


def silence_profiler() -> None:
    """Otherwise Kineto, the library below, writes a line to the terminal at every start and stop (level 5).

    To be called before the first profile.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
