"""How Lensbox calls `torch.jit`."""

import contextlib
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def quiet_torchscript() -> Iterator[None]:
    """Silences the deprecation warning that torch 2.10 and later give for every call into torch.jit.

    Lensbox uses TorchScript knowingly: C++ programs without Python load it. Not thread-safe, as Python's
    warning filters are shared by all threads: load artifacts before threads are started, or in one of them.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated", DeprecationWarning)
        yield
