"""Jobs that wait for an engine, bounded by number and bytes, taken together by group."""

import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from lensbox.serve.engine.errors import DeadlineError, OverloadError
from lensbox.serve.engine.jobs import Job


class ClosedError(Exception):
    """The queue takes no more jobs."""


@dataclass(eq=False, slots=True)
class Entry:
    """A job, who waits for it, and until when; times are those of `time.monotonic`."""

    job: Job[Any]
    future: "Future[Any]"
    deadline: float
    queued: float = field(default_factory=time.monotonic)


class JobQueue:
    """Jobs in the order in which they came. Any thread puts them in, one takes them out.

    size: most jobs that wait. nbytes: most bytes of their tensors; a job that is larger has its place when no
    other waits.
    """

    def __init__(self, size: int, nbytes: int) -> None:
        self._size = size
        self._nbytes = nbytes
        self._entries: deque[Entry] = deque()
        self._bytes = self._images = 0
        self._closed = False
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def images(self) -> int:
        """Images of the jobs that wait."""
        return self._images

    def check_room(self, nbytes: int = 1) -> None:
        """Raises OverloadError if there is no place for a job of that many bytes."""
        with self._changed:
            reason, dropped = self._make_room(nbytes)
        _fail_late(dropped)
        if reason:
            raise _overloaded(reason)

    def put(self, entry: Entry) -> None:
        """Raises OverloadError or ClosedError."""
        with self._changed:
            if self._closed:
                raise ClosedError
            reason, dropped = self._make_room(entry.job.nbytes)
            if not reason:
                self._entries.append(entry)
                self._bytes += entry.job.nbytes
                self._images += entry.job.images
                self._changed.notify()
        _fail_late(dropped)
        if reason:
            raise _overloaded(reason)

    def take(self, most_images: int, delay: float) -> list[Entry] | None:
        """The next jobs that somebody still waits for, marked as running; None when closed and empty.

        They are of one group and of `most_images` images together, or one larger job. Where there are fewer,
        others may join them for up to `delay` seconds after the first of them came, and no longer than half
        of the time that any of them has. Blocks.
        """
        while True:
            with self._changed:
                dropped = self._drop_given_up()
                batch = self._batch(most_images)
                wait = self._time_to_wait(batch, most_images, delay)
                ready = wait is not None and wait <= 0
                if ready:
                    self._remove(batch)
                elif not dropped:  # else they are told first
                    self._changed.wait(wait)
            _fail_late(dropped)
            if ready and not batch:
                return None
            if ready and (running := [entry for entry in batch if _begins(entry)]):
                return running

    def close(self) -> None:
        """From now on `put` raises ClosedError, and `take` ends once it has given out what waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def take_all(self) -> list[Entry]:
        """What waits, marked as running."""
        with self._changed:
            entries = list(self._entries)
            self._remove(entries)
        return [entry for entry in entries if _begins(entry)]

    def _make_room(self, nbytes: int) -> tuple[str, list[Entry]]:
        """What keeps a job out, "" for nothing; and the jobs that were dropped to let it in."""
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

    def _batch(self, most_images: int) -> list[Entry]:
        batch: list[Entry] = []
        room = most_images
        for entry in self._entries:
            if batch and (entry.job.group != batch[0].job.group or entry.job.images > room):
                continue
            batch.append(entry)
            room -= entry.job.images
            if room <= 0 or entry.job.group is None:
                break
        return batch

    def _time_to_wait(self, batch: list[Entry], most_images: int, delay: float) -> float | None:
        """How long others may still join a batch; None, for one that has not begun, is for ever."""
        if self._closed:
            return 0.0
        if not batch:
            return None
        is_full = sum(entry.job.images for entry in batch) >= most_images
        if is_full or batch[0].job.group is None:
            return 0.0
        in_time = min((entry.queued + entry.deadline) / 2 for entry in batch)
        return min(batch[0].queued + delay, in_time) - time.monotonic()

    def _drop_given_up(self) -> list[Entry]:
        """Removes jobs that nobody waits for any more; returns those whose time was over."""
        now = time.monotonic()
        given_up = [entry for entry in self._entries if entry.future.cancelled() or entry.deadline < now]
        if given_up:
            self._remove(given_up)
        return given_up

    def _remove(self, entries: list[Entry]) -> None:
        gone = set(map(id, entries))
        self._entries = deque(entry for entry in self._entries if id(entry) not in gone)
        self._bytes -= sum(entry.job.nbytes for entry in entries)
        self._images -= sum(entry.job.images for entry in entries)


def _begins(entry: Entry) -> bool:
    """Marks a job as running, unless it has been cancelled."""
    return entry.future.set_running_or_notify_cancel()


def _overloaded(reason: str) -> OverloadError:
    return OverloadError(f"{reason} already wait for the model; try again later")


def _fail_late(entries: list[Entry]) -> None:
    """Outside of the lock: a future calls those who wait for it."""
    for entry in entries:
        if _begins(entry):
            entry.future.set_exception(DeadlineError("the time for an answer was over before its turn came"))
