"""The progress bar of a run on a terminal."""

from __future__ import annotations

import sys
from typing import TextIO


class ProgressBar:
    """A tqdm bar over a run's progress, 0 to 1, with elapsed time and time left.

    Raises:
        ImportError: tqdm is not installed.
    """

    def __init__(self, stream: TextIO) -> None:
        from tqdm import tqdm  # optional: only a terminal needs it

        self._write_line = tqdm.write
        self._bar = tqdm(
            total=1.0,
            file=stream,
            dynamic_ncols=True,
            # Time left by the mean rate since the start: compiling and evaluations make the last rate jump.
            smoothing=0,
            bar_format="{percentage:5.1f}%|{bar}| {elapsed}<{remaining}{postfix}",
        )

    def begin(self, progress: float) -> None:
        """Starts its clock where the run starts or goes on: loading and compiling are no part of the rate."""
        self._bar.reset()
        self._bar.initial = self._bar.n = progress
        self._bar.refresh()

    def advance(self, progress: float) -> None:
        """Moves the bar. Cheap enough for every step: it is drawn ten times a second at most."""
        self._bar.update(progress - self._bar.n)

    def show(self, text: str) -> None:
        """Shows `text` right of the bar from now on."""
        self._bar.set_postfix_str(text, refresh=False)

    def write(self, line: str) -> None:
        """Prints a line to standard output, above the bar."""
        self._write_line(line, file=sys.stdout)

    def close(self) -> None:
        self._bar.close()


def open_progress_bar() -> ProgressBar | None:
    """A bar on standard error if that is a terminal and tqdm is installed, else None."""
    if not sys.stderr.isatty():
        return None
    try:
        return ProgressBar(sys.stderr)
    except ImportError:
        return None
