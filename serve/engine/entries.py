"""The entries of a job queue: a job with its future, or one part of a large job."""

import time
from dataclasses import dataclass, field
from typing import Any

from lensbox.serve.engine.jobs import Job


@dataclass(eq=False, slots=True)
class Entry:
    """A queued job with its deadline; times are of `time.monotonic`.

    future: a `Future`, or what has its methods `cancelled`, `set_running_or_notify_cancel`, `set_result` and
    `set_exception`: a `_Part`, or a `Reply` of an engine process.
    part: number of the part of a large job, see `entries_of`; None for a whole job. nbytes: of the job; all
    bytes of a large job belong to its last part.
    """

    job: Job[Any]
    future: Any
    deadline: float
    queued: float = field(default_factory=time.monotonic)
    part: int | None = None
    nbytes: int = -1

    def __post_init__(self) -> None:
        self.nbytes = self.job.nbytes if self.nbytes < 0 else self.nbytes

    def is_given_up(self, now: float) -> bool:
        """Return whether the job is cancelled or late. now: of `time.monotonic`."""
        return bool(self.future.cancelled()) or self.deadline < now

    def begins(self) -> bool:
        """Mark the job as running. Return False if it is cancelled."""
        begins: bool = self.future.set_running_or_notify_cancel()
        return begins


def entries_of(job: Job[Any], future: Any, deadline: float, queued: float, largest: int) -> "list[Entry]":
    """Return one entry, or one for each part of a job with more than `largest` images."""
    if job.images <= largest and not job.is_joined:
        return [Entry(job, future, deadline, queued)]
    parts = list(job.parts(largest))
    whole = _Whole(job, future, len(parts))
    last = len(parts) - 1
    return [
        Entry(part, _Part(whole, number), deadline, queued, number, job.nbytes if number == last else 0)
        for number, part in enumerate(parts)
    ]


class _Whole:
    """The results of the parts of a large job, which can be cancelled until its last part is computed."""

    def __init__(self, job: Job[Any], future: Any, parts: int) -> None:
        self.job = job
        self.future = future
        self.results: list[Any] = [None] * parts
        self.left = parts
        self.has_failed = False


class _Part:
    """The promise of one part."""

    def __init__(self, whole: _Whole, number: int) -> None:
        self._whole = whole
        self._number = number

    def cancelled(self) -> bool:
        return self._whole.has_failed or self._whole.future.cancelled()

    def set_running_or_notify_cancel(self) -> bool:
        return not self.cancelled()

    def set_result(self, result: Any) -> None:
        whole = self._whole
        whole.results[self._number] = result
        whole.left -= 1
        if whole.left:
            return
        try:
            joined = whole.job.joined(whole.results)
        except Exception as error:
            self.set_exception(error)
        else:
            if whole.future.set_running_or_notify_cancel():
                whole.future.set_result(joined)

    def set_exception(self, exception: BaseException) -> None:
        whole = self._whole
        if not whole.has_failed:
            whole.has_failed = True
            if whole.future.set_running_or_notify_cancel():
                whole.future.set_exception(exception)
