"""How long the service's decoder is busy with a file, in a process that can be ended."""

import math
import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing.pool import Pool

from lensbox.bench.photo.hostile.files import HostileFile
from lensbox.bench.timing import percentile

LARGEST_SIDE = 7099  # squared, just within the pixels that the service takes by default
_PATIENCE = 120.0  # seconds

Answer = tuple[float, str]  # CPU seconds, and what came of it


@dataclass(frozen=True)
class DecodeTime:
    """bytes: of the file. seconds: CPU time, the median of some decodings; None where no answer came.
    outcome: what the service makes of it."""

    name: str
    bytes: int
    seconds: float | None
    outcome: str

    @property
    def bound(self) -> float:
        """The seconds; without end where no answer came."""
        return math.inf if self.seconds is None else self.seconds


def slowest_first(times: Iterable[DecodeTime]) -> list[DecodeTime]:
    return sorted(times, key=lambda time: time.bound, reverse=True)


class Decoder(AbstractContextManager["Decoder"]):
    """A process that decodes one file after another, and is replaced where one keeps it too long."""

    def __init__(self, decode: Callable[[bytes], Answer], patience: float = _PATIENCE) -> None:
        self._decode = decode
        self._patience = patience
        self._pool = _new_process()

    def __call__(self, file: bytes) -> Answer | None:
        """None if there is no answer in time: it hangs, or the process is dead."""
        try:
            return self._pool.apply_async(self._decode, (file,)).get(self._patience)
        except multiprocessing.TimeoutError:
            self._pool.terminate()
            self._pool = _new_process()
            return None

    def __exit__(self, *_: object) -> None:
        self._pool.terminate()


def measure(files: Sequence[HostileFile], side: int, repeats: int, decoder: Decoder) -> Iterator[DecodeTime]:
    """Makes each file of about side x side pixels and has it decoded `repeats` times."""
    for hostile in files:
        file = hostile.make(side)
        answers = []
        for _ in range(repeats):
            if (answer := decoder(file)) is None:
                break
            answers.append(answer)
        if len(answers) < repeats:
            yield DecodeTime(hostile.name, len(file), None, "no answer")
            continue
        seconds, outcomes = zip(*answers, strict=True)
        yield DecodeTime(hostile.name, len(file), percentile(seconds, 0.5), outcomes[0])


def _new_process() -> Pool:
    """Not forked: this process has threads. Its start is not counted."""
    pool = multiprocessing.get_context("spawn").Pool(1)
    pool.apply(int)
    return pool
