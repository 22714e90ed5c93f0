"""A bar on the terminal that shows how far `lensbox detect` is, and lets lines be printed meanwhile."""

import contextlib
import sys
from collections.abc import Callable, Iterator

import click

_ERASE = "\r\x1b[K"


Step = Callable[[], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def progress(length: int) -> Iterator[Step]:
    """Gives a function: once for each file, within what it gives, lines may be printed.

    The bar is on stderr, and there is none where that is no terminal, nor for a single file.
    """
    if length < 2 or not sys.stderr.isatty():
        yield contextlib.nullcontext
        return
    with click.progressbar(length=length, file=sys.stderr, show_pos=True, label="detecting") as bar:

        @contextlib.contextmanager
        def step() -> Iterator[None]:
            click.echo(_ERASE, nl=False, err=True)
            yield
            sys.stdout.flush()
            bar.update(1)  # its position has changed, so it draws itself again

        yield step
