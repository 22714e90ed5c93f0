"""The progress bar of a run on a terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO


class ProgressBar:
    """A tqdm bar over a run's progress, 0 to 1, with elapsed time and time left.

    Raises:
        ImportError: tqdm is not installed.
    """

    def __init__(self, stream: TextIO) -> None:
        from tqdm import tqdm  # optional: only a terminal needs it

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

    def close(self) -> None:
        """Leaves what it shows where it is."""
        self._bar.close()


@contextmanager
def open_progress_bar(wanted: bool = True) -> Iterator[ProgressBar | None]:
    """A bar on standard error, with log lines above it; None if it is not wanted, standard error is no
    terminal or tqdm is not installed."""
    bar = _bar_on_terminal() if wanted else None
    if bar is None:
        yield None
        return
    from tqdm.contrib.logging import logging_redirect_tqdm

    with logging_redirect_tqdm([logging.getLogger("lensbox")]):
        try:
            yield bar
        finally:
            bar.close()


def _bar_on_terminal() -> ProgressBar | None:
    if not sys.stderr.isatty():
        return None
    try:
        return ProgressBar(sys.stderr)
    except ImportError:
        return None
