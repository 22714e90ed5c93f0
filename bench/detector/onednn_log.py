"""How much of a call oneDNN spends on reordering tensors into layouts of its own, by its own log.

torch's profiler does not see it: a reorder is a part of the convolution that asks for it.
"""

import ctypes
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import torch

from lensbox.bench.detector.operators import Share
from lensbox.bench.detector.ways import Call


def onednn_reorders(call: Call) -> Share | None:
    """Of one call; None where torch has no oneDNN."""
    mkldnn = torch.backends.mkldnn
    if not mkldnn.is_available():
        return None
    call()
    with _standard_output() as file:
        with mkldnn.verbose(mkldnn.VERBOSE_ON):
            call()
        log = _read(file)
    return reorders_in(log)


def reorders_in(log: str) -> Share:
    """Adds up lines such as `onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,...,16x1x3x3,0.0049`.

    The last field is milliseconds.
    """
    milliseconds = []
    for line in log.splitlines():
        fields = line.split(",")
        if fields[0] == "onednn_verbose" and "exec" in fields[:5] and "reorder" in fields[:7]:
            milliseconds.append(float(fields[-1]))
    return Share(len(milliseconds), 1e3 * sum(milliseconds))


@contextmanager
def _standard_output() -> Iterator[IO[bytes]]:
    """Sends what the process writes to its standard output, C++ code included, to a file."""
    sys.stdout.flush()
    _flush_c()
    usual = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            yield file
        finally:
            _flush_c()
            os.dup2(usual, 1)
            os.close(usual)


def _read(file: IO[bytes]) -> str:
    _flush_c()
    file.seek(0)
    return file.read().decode(errors="replace")


def _flush_c() -> None:
    ctypes.CDLL(None).fflush(None)
