"""Calls of TorchScript, with its deprecation warnings silenced."""

import contextlib
import warnings
from collections.abc import Iterator

import torch

from lensbox.common.torch_settings import without_autocast


@contextlib.contextmanager
def quiet_torchscript() -> Iterator[None]:
    """Silence torch's warnings that TorchScript is deprecated, or not supported on Python 3.14 and later.

    Every call of torch.jit warns: with DeprecationWarning up to torch 2.13, with FutureWarning from 2.14 on.
    Lensbox uses TorchScript on purpose: C++ programs load it without Python.

    Not thread-safe: all threads share Python's warning filters. Load artifacts in one thread.
    """
    with warnings.catch_warnings():
        for category in (DeprecationWarning, FutureWarning):
            warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is (deprecated|not supported)", category)
        yield


@contextlib.contextmanager
def torchscript_call() -> Iterator[None]:
    """Call an artifact's methods within this context: no gradients, autocast or compilation; plain errors.

    torch's profiling executor would profile the first call, compile in the second, and on a GPU compile again
    for every new batch size; requests would wait for seconds. Without it the graph runs as exported. The
    switch belongs to the thread, so each call sets it.
    """
    once = torch.jit.optimized_execution(False)  # type: ignore[attr-defined] # not in its __all__
    with torch.inference_mode(), once, without_autocast():
        try:
            yield
        except torch.jit.Error as error:
            # The traceback is a compiler's. Its last line is the exception of the scripted code:
            # 'builtins.ValueError: message'.
            message = str(error).strip().splitlines()[-1]
            raise ValueError(message.removeprefix("builtins.ValueError: ")) from error
