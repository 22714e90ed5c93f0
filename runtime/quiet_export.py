"""Silences what torch.export says of torch rather than of a detector."""

import contextlib
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def quiet_export() -> Iterator[None]:
    """Around calls of torch.export. Not thread-safe: all threads share Python's warning filters."""
    with warnings.catch_warnings():
        # torch 2.11 to 2.13 use a class of their own that they have deprecated.
        warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)`", FutureWarning)
        yield
