"""The precision of float32 convolutions and matrix products on GPUs while an artifact computes."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

_cudnn: Any = torch.backends.cudnn
_cublas: Any = torch.backends.cuda.matmul
_NEWER: tuple[Any, ...] = (_cudnn.conv, _cudnn.rnn, _cublas)


class _Switches(NamedTuple):
    """The values of both of torch's interfaces: some kernels read the older one, which raises if they differ.

    convolutions, products: whether TF32 is allowed. medium: whether matrix products may use bfloat16. newer:
    `fp32_precision` of each of `_NEWER`.
    """

    convolutions: bool
    products: bool
    medium: bool
    newer: list[str]


def _read_switches() -> _Switches:
    newer = [switch.fp32_precision for switch in _NEWER]
    return _Switches(
        _read_or(newer[0] == "tf32", lambda: _cudnn.allow_tf32),
        _read_or(newer[2] == "tf32", lambda: _cublas.allow_tf32),
        _read_or(False, lambda: torch.get_float32_matmul_precision() == "medium"),
        newer,
    )


def _read_or(otherwise: bool, read: Callable[[], bool]) -> bool:
    """Return the value of `read`, or `otherwise` if the process has set only the newer interface."""
    try:
        return read()
    except RuntimeError:
        return otherwise


def _put_back(switches: _Switches) -> None:
    _cudnn.allow_tf32, _cublas.allow_tf32 = switches.convolutions, switches.products
    if switches.medium:
        torch.set_float32_matmul_precision("medium")
    for switch, precision in zip(_NEWER, switches.newer, strict=True):
        switch.fp32_precision = precision


class _Turns:
    """A lock with two modes, full float32 and TF32: calls of one mode run together, and exclude the other."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting = {False: 0, True: 0}  # number of waiting calls by mode
        self._running = 0
        self._now = False  # the mode of the running calls
        self._before: _Switches | None = None

    def begin(self, tf32: bool) -> None:
        with self._changed:
            self._waiting[tf32] += 1
            try:
                # A new call lets waiting calls of the other mode go first: no starvation.
                self._changed.wait_for(
                    lambda: self._running == 0 or (self._now == tf32 and not self._waiting[not tf32])
                )
            finally:
                self._waiting[tf32] -= 1
            self._running += 1
            if self._running == 1:
                self._now = tf32
                self._before = _read_switches()
                # Setting the older interface sets the newer one, too.
                _cudnn.allow_tf32 = _cublas.allow_tf32 = tf32

    def end(self) -> None:
        with self._changed:
            self._running -= 1
            if self._running == 0:
                assert self._before is not None
                _put_back(self._before)
                self._changed.notify_all()


_turns = _Turns()


@contextlib.contextmanager
def gpu_float32(device: torch.device, tf32: bool) -> Iterator[None]:
    """Compute in full float32 on a GPU within the context, or in TF32 if the artifact was made for it.

    Tensor cores round factors to TF32; if two boxes nearly tie, NMS may then keep another box than on the
    CPU. torch's switches belong to the process: the first call sets them, the last call restores them, and
    calls with the other precision wait meanwhile. Do not nest calls in one thread where calls with both
    precisions may come: they would deadlock.
    """
    if device.type != "cuda":
        yield
        return
    _turns.begin(tf32)
    try:
        yield
    finally:
        _turns.end()
