"""A bounded job queue. Jobs of one group are taken as one batch."""

import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from lensbox.serve.engine.jobs import Job
from lensbox.serve.errors import DeadlineError, NotReadyError, OverloadError

_LEAST_PREPARED = 16  # images: smaller batches gain nothing from sharing
_LOOK = 1.0  # seconds between checks for a closed queue while a source waits


@dataclass(eq=False, slots=True)
class Entry:
    """A queued job with its deadline; times are of `time.monotonic`.

    future: a `Future`, or what has its methods `cancelled`, `set_running_or_notify_cancel`, `set_result` and
    `set_exception`, as a `Reply` of an engine process.
    """

    job: Job[Any]
    future: Any
    deadline: float
    queued: float = field(default_factory=time.monotonic)

    def is_given_up(self, now: float) -> bool:
        """Return whether the job is cancelled or late. now: of `time.monotonic`."""
        return bool(self.future.cancelled()) or self.deadline < now

    def begins(self) -> bool:
        """Mark the job as running. Return False if it is cancelled."""
        begins: bool = self.future.set_running_or_notify_cancel()
        return begins


class Source(Protocol):
    """Ends the wait of the thread that takes jobs, and may bring jobs of other processes."""

    def receive(self, timeout: float, busy: bool = True) -> None:
        """Wait up to `timeout` seconds. Put in the jobs of other processes. busy: may busy-poll."""

    def wake(self) -> None:
        """End the wait of `receive`, or the next one. Any thread may call it."""


class Wakes:
    """The source of a queue that gets jobs from threads of this process alone."""

    def __init__(self) -> None:
        self._woken = threading.Event()

    def receive(self, timeout: float, busy: bool = True) -> None:
        if self._woken.is_set() or (timeout and self._woken.wait(timeout)):
            self._woken.clear()

    def wake(self) -> None:
        self._woken.set()


class JobQueue:
    """A first-in, first-out queue: any thread puts jobs in, one thread takes them out.

    size: maximum number of jobs. nbytes: maximum bytes of their tensors; a larger job fits into an empty
    queue. source: with the jobs of other processes, which the thread that takes jobs puts in itself, so that
    no job has to wake a thread. After `put` in another thread, call `wake`.
    """

    def __init__(self, size: int, nbytes: int, source: Source | None = None) -> None:
        self._size = size
        self._nbytes = nbytes
        self._entries: deque[Entry] = deque()
        self._bytes = self._images = 0
        self._closed = ""  # the reason
        self._source = source or Wakes()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def images(self) -> int:
        """Number of images of all queued jobs."""
        return self._images

    @property
    def room(self) -> int:
        """Number of further jobs that the queue would take; 0 if their images have no room."""
        with self._lock:
            reason, dropped = self._make_room(1)
            room = 0 if reason else self._size - len(self._entries)
        _fail_late(dropped)
        return room

    def wake(self) -> None:
        """Let `take` look for jobs."""
        self._source.wake()

    def receive(self) -> None:
        """Put in the jobs that other processes have sent."""
        self._source.receive(0.0)

    def wait_for(self, future: "Future[Any]") -> None:
        """Wait until a future is done, and put in the jobs that other processes send meanwhile."""
        if not future.done():
            future.add_done_callback(lambda _: self.wake())
        while not future.done():
            # Busy-polling would compete with the other thread for the GIL.
            self._source.receive(_LOOK, busy=False)

    def put(self, entry: Entry) -> None:
        """Append a job. Raise OverloadError, or NotReadyError once closed."""
        with self._lock:
            if self._closed:
                raise NotReadyError(self._closed)
            reason, dropped = self._make_room(entry.job.nbytes)
            if not reason:
                self._entries.append(entry)
                self._count(entry, 1)
        _fail_late(dropped)
        if reason:
            raise OverloadError(f"{reason} already wait for the model; try again later")

    def take(self, most_images: int, running: int = 0, blocks: bool = True) -> list[Entry] | None:
        """Return the next batch; None when the queue is closed and empty.

        A batch is jobs of one group with up to `most_images` images, marked as running.

        running: number of images that are taken and not finished. Jobs with a preparation share these and the
        queued ones equally between two batches, so that one is prepared while the other is computed: clients
        send again when they are answered, and one large batch would stay one.
        blocks: wait for a batch; if False, return an empty list if there is none yet.
        """
        timeout = 0.0
        while True:
            self._source.receive(timeout)
            with self._lock:
                dropped = self._drop_given_up()
                batch = self._batch(most_images, running)
                is_over = not batch and self._closed
                if batch:
                    self._remove(batch)
            _fail_late(dropped)
            if is_over:
                return None
            if begun := [entry for entry in batch if entry.begins()]:
                return begun
            if not (batch or blocks):
                return []
            timeout = 0.0 if batch or dropped else _LOOK

    def take_to_prepare(self, most_images: int, running: int) -> list[Entry]:
        """Return what `take` would return at once, if it is a large batch of jobs that have a preparation;
        otherwise an empty list.

        Any thread may call it while no other takes. Cancelled and late jobs are left to `take`, and so is a
        small batch, which may have grown until then.
        """
        now = time.monotonic()
        with self._lock:
            batch = self._batch(most_images, running)
            if len(batch) < _LEAST_PREPARED or not batch[0].job.prepares:
                return []
            if any(entry.is_given_up(now) for entry in batch):
                return []
            self._remove(batch)
        return [entry for entry in batch if entry.begins()]

    def close(self, reason: str) -> None:
        """Refuse new jobs with NotReadyError. `take` returns the queued jobs, then None."""
        with self._lock:
            self._closed = reason
        self.wake()

    def fail(self, reason: str) -> None:
        """Refuse new jobs and all queued jobs with NotReadyError."""
        self.close(reason)
        with self._lock:
            entries = list(self._entries)
            self._remove(entries)
        for entry in entries:
            if entry.begins():
                entry.future.set_exception(NotReadyError(reason))

    def _make_room(self, nbytes: int) -> tuple[str, list[Entry]]:
        """Drop cancelled and late jobs if the queue is full.

        Return the reason if the queue is still full, else "", and the dropped jobs.
        """
        dropped: list[Entry] = []
        if self._occupied(nbytes):
            dropped = self._drop_given_up()
        return self._occupied(nbytes), dropped

    def _occupied(self, nbytes: int) -> str:
        if len(self._entries) >= self._size:
            return f"{len(self._entries)} jobs"
        if self._entries and self._bytes + nbytes > self._nbytes:
            return f"{self._bytes} bytes of images"
        return ""

    def _share(self, most_images: int, running: int) -> int:
        """Return how many images the next batch may have."""
        if not self._entries or not self._entries[0].job.prepares:
            return most_images
        return min(most_images, max(_LEAST_PREPARED, -(-(self._images + running) // 2)))

    def _batch(self, most_images: int, running: int) -> list[Entry]:
        """Return the first entry and later ones of its group, as long as there is room in the batch."""
        batch: list[Entry] = []
        group, room = None, self._share(most_images, running)
        for entry in self._entries:
            if not batch:
                group = entry.job.group
            elif entry.job.group != group or entry.job.images > room:
                continue
            batch.append(entry)
            room -= entry.job.images
            if room <= 0 or group is None:
                break
        return batch

    def _drop_given_up(self) -> list[Entry]:
        """Remove cancelled and late jobs; return them."""
        now = time.monotonic()
        given_up = [entry for entry in self._entries if entry.is_given_up(now)]
        if given_up:
            self._remove(given_up)
        return given_up

    def _remove(self, entries: list[Entry]) -> None:
        gone = set(map(id, entries))
        self._entries = deque(entry for entry in self._entries if id(entry) not in gone)
        for entry in entries:
            self._count(entry, -1)

    def _count(self, entry: Entry, sign: int) -> None:
        self._bytes += sign * entry.job.nbytes
        self._images += sign * entry.job.images


def _fail_late(entries: list[Entry]) -> None:
    """Fail dropped jobs with DeadlineError. Call without the lock, because futures run their callbacks."""
    for entry in entries:
        if entry.begins():
            entry.future.set_exception(DeadlineError("the deadline passed while the job was queued"))
