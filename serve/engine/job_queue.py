"""A job queue. Jobs of one group are taken as one batch."""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from lensbox.serve.engine.jobs import Job
from lensbox.serve.errors import DeadlineError, NotReadyError, OverloadError

LEAST_PREPARED = 16  # images: smaller batches gain nothing from sharing


@dataclass(eq=False, slots=True)
class Entry:
    """A queued job with its deadline; times are of `time.monotonic`.

    answer: called once, with the result or an exception, unless the job is cancelled before its turn.
    """

    job: Job[Any]
    answer: Callable[[Any], None]
    deadline: float
    queued: float = field(default_factory=time.monotonic)
    is_cancelled: bool = False
    is_taken: bool = False
    images: int = field(init=False)
    nbytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.images, self.nbytes = self.job.images, self.job.nbytes


class Source(Protocol):
    """Ends the wait of the thread that takes jobs, and may bring jobs of other processes."""

    def receive(self, timeout: float) -> None:
        """Wait up to `timeout` seconds. Put in the jobs of other processes."""

    def wake(self) -> None:
        """End the wait of `receive`, or the next one. Any thread may call it."""


class Wakes:
    """The source of a queue that gets jobs from threads of this process alone."""

    def __init__(self) -> None:
        self._woken = threading.Event()

    def receive(self, timeout: float) -> None:
        if self._woken.is_set() or (timeout and self._woken.wait(timeout)):
            self._woken.clear()

    def wake(self) -> None:
        self._woken.set()


class JobQueue:
    """A first-in, first-out queue: any thread puts jobs in, one thread takes them out.

    nbytes: maximum bytes of the jobs' tensors; a larger job fits into an empty queue. Front ends bound the
    number of jobs, as they admit requests.
    """

    def __init__(self, nbytes: int) -> None:
        self._nbytes = nbytes
        self._entries: deque[Entry] = deque()
        self._bytes = 0
        self.images = 0  # of all queued jobs
        self.closed = ""  # the reason
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, entry: Entry) -> None:
        """Append a job. Raise OverloadError, or NotReadyError once closed."""
        with self._lock:
            if self.closed:
                raise NotReadyError(self.closed)
            if self._entries and self._bytes + entry.nbytes > self._nbytes:
                self._remove([one for one in self._entries if one.is_cancelled])
            if self._entries and self._bytes + entry.nbytes > self._nbytes:
                reason = f"{self._bytes} bytes of images already wait for the model"
                raise OverloadError(f"{reason}; try again later")
            self._entries.append(entry)
            self._bytes += entry.nbytes
            self.images += entry.images

    def take(
        self, most_images: int, running: int = 0, least_images: int = 1, only_prepared: bool = False
    ) -> list[Entry]:
        """Return the next batch: jobs of one group with up to `most_images` images. Fail late jobs.

        running: number of images that are taken and not finished. Jobs with a preparation share these and the
        queued ones equally between two batches, so that one is prepared while the other is computed: clients
        send again when they are answered, and one large batch would stay one. least_images: return nothing if
        the batch would have fewer. only_prepared: and if its jobs have no preparation.
        """
        now = time.monotonic()
        with self._lock:
            gone = [entry for entry in self._entries if entry.is_cancelled or entry.deadline < now]
            self._remove(gone)
            batch = self._batch(most_images, running)
            must_wait = only_prepared and batch and not batch[0].job.prepares
            if must_wait or sum(entry.images for entry in batch) < least_images:
                batch = []
            self._remove(batch)
            for entry in batch:
                entry.is_taken = True
        for entry in gone:  # without the lock
            if not entry.is_cancelled:
                entry.answer(DeadlineError("the deadline passed while the job was queued"))
        return batch

    def close(self, reason: str) -> None:
        """Refuse new jobs with NotReadyError."""
        with self._lock:
            self.closed = reason

    def fail(self, reason: str) -> None:
        """Refuse new jobs and all queued jobs with NotReadyError."""
        self.close(reason)
        with self._lock:
            entries = list(self._entries)
            self._remove(entries)
        for entry in entries:
            if not entry.is_cancelled:
                entry.answer(NotReadyError(reason))

    def _batch(self, most_images: int, running: int) -> list[Entry]:
        """Return the first entry and later ones of its group, as long as there is room in the batch."""
        batch: list[Entry] = []
        group, room = None, most_images
        for entry in self._entries:
            if not batch:
                group = entry.job.group
                if entry.job.prepares:
                    room = min(room, max(LEAST_PREPARED, -(-(self.images + running) // 2)))
            elif entry.job.group != group or entry.images > room:
                continue
            batch.append(entry)
            room -= entry.images
            if room <= 0 or group is None:
                break
        return batch

    def _remove(self, entries: list[Entry]) -> None:
        for entry in entries:  # most are the first ones
            self._entries.remove(entry)
            self._bytes -= entry.nbytes
            self.images -= entry.images
