"""Calls of TorchScript, with its deprecation warnings silenced."""

import contextlib
import warnings
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def quiet_torchscript() -> Iterator[None]:
    """Silence torch's warnings that TorchScript is deprecated, or not supported on Python 3.14 and later.

    torch gives them for every call into torch.jit: as DeprecationWarning up to 2.13, as FutureWarning from
    2.14 on. Lensbox uses TorchScript knowingly: C++ programs without Python load it.

    Not thread-safe, as Python's warning filters are shared by all threads: load artifacts before threads are
    started, or in one of them.
    """
    with warnings.catch_warnings():
        for category in (DeprecationWarning, FutureWarning):
            warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is (deprecated|not supported)", category)
        yield


@contextlib.contextmanager
def torchscript_call() -> Iterator[None]:
    """Around every call of an artifact's methods: no gradients, no compilation, plain errors.

    torch's profiling executor would watch the first call, compile in the second, and on a GPU again for every
    new batch size, for seconds: requests wait meanwhile. Without it the graph runs as it was exported, from
    the first call on. The switch belongs to the thread, so it is set for each call.
    """
    unoptimized = torch.jit.optimized_execution(False)  # type: ignore[attr-defined] # not in its __all__
    with torch.inference_mode(), unoptimized, _plain_errors():
        yield


@contextlib.contextmanager
def _plain_errors() -> Iterator[None]:
    """Turns an exception raised inside TorchScript, with its compiler-style traceback, into a ValueError."""
    try:
        yield
    except torch.jit.Error as error:
        # The last line is the Python exception that the scripted code raised: 'builtins.ValueError: message'.
        message = str(error).strip().splitlines()[-1]
        raise ValueError(message.removeprefix("builtins.ValueError: ")) from error
