"""How many requests each client may still make: token buckets that processes of one service share.

A bucket is one number, the time at which it will be full again ("generic cell rate algorithm"): a request
moves it on by the time that a token takes, unless it would then lie further ahead than a whole bucket takes.
A table of fixed size has them all, so that no number of clients takes more memory.
"""

import fcntl
import hashlib
import mmap
import os
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.reduction import DupFd
from typing import Any, NamedTuple

_WAYS = 8
_SETS = 4096
# Of one set: the hashes of the clients' names, and the times of their buckets. A name belongs to one set.
# Where all its places are taken it gets that of the fullest bucket: of 32,768 clients a full one can nearly
# always be had.
_LAYOUT = struct.Struct(f"={_WAYS}Q{_WAYS}d")


class Level(NamedTuple):
    """allowed: whether there was a token. left: whole tokens that are left. full: seconds until the bucket is
    full; next: seconds until there is a token, 0 if there is one."""

    allowed: bool
    left: int
    full: float
    next: float


class TokenBuckets:
    """One for each name: `burst` tokens, `rate` new ones a second.

    Another process that gets it, pickled as an argument of that process, shares it: times are those of
    `time.monotonic`, which is one clock for a machine.
    """

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._attach(rate, burst, _new_file(), clock)

    def _attach(self, rate: float, burst: int, file: int, clock: Callable[[], float]) -> None:
        self.rate, self.burst = rate, burst
        self._file = file
        self._table = mmap.mmap(file, _SETS * _LAYOUT.size)
        self._clock = clock

    def __reduce__(self) -> Any:
        return _attached, (self.rate, self.burst, DupFd(self._file))

    def take(self, name: str) -> Level:
        """Takes a token, if there is one."""
        key = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") or 1
        offset = key % _SETS * _LAYOUT.size
        with self._locked(offset):
            numbers = _LAYOUT.unpack_from(self._table, offset)
            keys, times = list(numbers[:_WAYS]), list(numbers[_WAYS:])
            place = keys.index(key) if key in keys else times.index(min(times))
            now = self._clock()
            full = max(times[place], now) if keys[place] == key else now
            after = full + 1 / self.rate
            # Not more exact than the sums of 1 / rate.
            wait = after - now - self.burst / self.rate
            allowed = wait <= 1e-9
            if allowed:
                keys[place], times[place] = key, after
                _LAYOUT.pack_into(self._table, offset, *keys, *times)
                full = after
        left = self.burst - (full - now) * self.rate
        return Level(allowed, max(0, int(left + 1e-6)), full - now, max(0.0, (1 - left) / self.rate))

    @contextmanager
    def _locked(self, offset: int) -> Iterator[None]:
        """For this process alone; the kernel lets go if it dies. Threads of one process do not keep each
        other out: it is for the event loop."""
        fcntl.lockf(self._file, fcntl.LOCK_EX, _LAYOUT.size, offset)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, _LAYOUT.size, offset)


def _attached(rate: float, burst: int, file: Any) -> TokenBuckets:
    buckets = TokenBuckets.__new__(TokenBuckets)
    buckets._attach(rate, burst, file.detach(), time.monotonic)
    return buckets


def _new_file() -> int:
    """Memory without a name where there is such a thing, all zeros."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("lensbox-rates")
    else:
        with tempfile.TemporaryFile() as temporary:
            file = os.dup(temporary.fileno())
    os.ftruncate(file, _SETS * _LAYOUT.size)
    return file
