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
    """Those of both of torch's interfaces: some of its kernels read the older one, which raises where the two
    disagree.

    medium: products in bfloat16, where they may be. newer: `fp32_precision` of each of `_NEWER`.
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
    """Return the value of `read`, or `otherwise` in a process that has set only the newer interface."""
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
    """Calls that want the switches alike run together, others wait until those before them have ended."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting = {False: 0, True: 0}  # for full float32, and for TF32
        self._running = 0
        self._now = False  # what those that run want
        self._before: _Switches | None = None

    def begin(self, tf32: bool) -> None:
        with self._changed:
            self._waiting[tf32] += 1
            try:
                # Whoever comes while others wait lets them go first, or they could wait for ever.
                self._changed.wait_for(
                    lambda: self._running == 0 or (self._now == tf32 and not self._waiting[not tf32])
                )
            finally:
                self._waiting[tf32] -= 1
            self._running += 1
            if self._running == 1:
                self._now = tf32
                self._before = _read_switches()
                # The older interface sets the newer one, too.
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
    """Around calls of an artifact's methods: full float32 on a GPU, or TF32 if the artifact was made for it.

    Tensor cores round what they multiply to TF32: where two boxes nearly tie, NMS may then keep another one
    than on the CPU. torch's switches belong to the process: the first call sets them, the last one puts them
    back, and calls that want them otherwise wait meanwhile. Not to be nested in one thread.
    """
    if device.type != "cuda":
        yield
        return
    _turns.begin(tf32)
    try:
        yield
    finally:
        _turns.end()
