"""How float32 convolutions and matrix products are computed on GPUs while an artifact computes."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch

_cudnn: Any = torch.backends.cudnn
# torch's newer interface: of the older, `allow_tf32`, a process that also uses the newer cannot read the
# switches.
_SWITCHES: tuple[Any, ...] = (_cudnn.conv, _cudnn.rnn, torch.backends.cuda.matmul)


class _Turns:
    """Calls that want the switches alike run together, others wait until those before them have ended."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting = {"ieee": 0, "tf32": 0}
        self._running = 0
        self._now = "ieee"  # what those that run want
        self._before: list[str] = []

    def begin(self, wanted: str) -> None:
        with self._changed:
            self._waiting[wanted] += 1
            try:
                self._changed.wait_for(lambda: self._is_free_for(wanted))
            finally:
                self._waiting[wanted] -= 1
            self._running += 1
            if self._running == 1:
                self._now = wanted
                self._before = [switch.fp32_precision for switch in _SWITCHES]
                _set([wanted] * len(_SWITCHES))

    def end(self) -> None:
        with self._changed:
            self._running -= 1
            if self._running == 0:
                _set(self._before)
                self._changed.notify_all()

    def _is_free_for(self, wanted: str) -> bool:
        # Whoever comes while others wait lets them go first, or they could wait for ever.
        others = sum(self._waiting.values()) - self._waiting[wanted]
        return self._running == 0 or (self._now == wanted and others == 0)


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
    _turns.begin("tf32" if tf32 else "ieee")
    try:
        yield
    finally:
        _turns.end()


def _set(precisions: list[str]) -> None:
    for switch, precision in zip(_SWITCHES, precisions, strict=True):
        switch.fp32_precision = precision
