"""Jobs that wait for an engine, bounded by number and bytes, taken together by group."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from lensbox.serve.engine.errors import DeadlineError, OverloadError
from lensbox.serve.engine.jobs import Job

_LOOK = 1.0  # seconds after which one that waits in `receive` looks whether the queue was closed


class ClosedError(Exception):
    """The queue takes no more jobs."""


@dataclass(eq=False, slots=True)
class Entry:
    """A job, who waits for it, and until when; times are those of `time.monotonic`.

    parts: what is left to compute of a job of more images than one call takes, None for any other; left: its
    images that are not computed yet; results: of the parts that are.
    """

    job: Job[Any]
    future: "Future[Any]"
    deadline: float
    parts: Iterator[Job[Any]] | None = None
    queued: float = field(default_factory=time.monotonic)
    results: list[Any] = field(default_factory=list)
    left: int = field(init=False)

    def __post_init__(self) -> None:
        self.left = self.job.images

    def begins(self) -> bool:
        """Marks the job as running, unless it has been cancelled. One in parts can be until its last part is
        computed."""
        return self.future.set_running_or_notify_cancel()


class JobQueue:
    """Jobs in the order in which they came. Any thread puts them in, one takes them out.

    Between two parts of a large job one batch of jobs that need one call each has its turn. So none of these
    waits for all of the large one, which takes at most twice as long as alone. Other large ones wait until it
    is done: in turns both would end as late as the last.

    size: most jobs that wait. nbytes: most bytes of their tensors; a job that is larger has its place when no
    other waits. receive: waits for jobs of other processes, for at most so many seconds, and puts them. It is
    called by `take`, whose thread is then the only one that puts any: none has to be woken up.
    """

    def __init__(self, size: int, nbytes: int, receive: Callable[[float], None] | None = None) -> None:
        self._size = size
        self._nbytes = nbytes
        self._entries: deque[Entry] = deque()
        self._bytes = self._images = self._images_in_parts = 0
        self._part_was_last = False
        self._closed = False
        self._receive = receive
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def images(self) -> int:
        """Images of the jobs that wait."""
        return self._images

    @property
    def images_before_small(self) -> int:
        """Those of jobs that need one call each: others do not keep a job of that kind waiting."""
        return self._images - self._images_in_parts

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
                self._count(entry, 1)
                self._changed.notify()
        _fail_late(dropped)
        if reason:
            raise _overloaded(reason)

    def put_back(self, entry: Entry) -> None:
        """Takes a job back of which a part was computed, whatever else waits, and closed or not."""
        with self._changed:
            self._entries.appendleft(entry)
            self._count(entry, 1)
            self._part_was_last = True

    def take(self, most_images: int, delay: float) -> list[Entry] | None:
        """The next jobs that somebody still waits for; None when closed and empty.

        They are of one group, of `most_images` images together, and marked as running; or it is one job in
        parts, for its next part. Where there are fewer, and no such job waits, others may join them for up to
        `delay` seconds after the first of them came, and no longer than half of the time that any of them
        has. Blocks.
        """
        wait: float | None = 0.0
        while True:
            if self._receive is not None:
                self._receive(_LOOK if wait is None else wait)
            with self._changed:
                dropped = self._drop_given_up()
                batch = self._batch(most_images)
                wait = self._time_to_wait(batch, most_images, delay)
                ready = wait is not None and wait <= 0
                if ready:
                    self._remove(batch)
                    self._part_was_last = False
                elif not dropped and self._receive is None:  # else they are told first
                    self._changed.wait(wait)
            _fail_late(dropped)
            if ready and not batch:
                return None
            if ready and (running := [entry for entry in batch if entry.parts is not None or entry.begins()]):
                return running
            if ready or dropped:
                wait = 0.0

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
        return [entry for entry in entries if entry.begins()]

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
        if self._part_was_last:
            others = (entry for entry in self._entries if entry.parts is None)
            if batch := _of_one_group(others, most_images):
                return batch
        return _of_one_group(self._entries, most_images)

    def _time_to_wait(self, batch: list[Entry], most_images: int, delay: float) -> float | None:
        """How long others may still join a batch; None, for one that has not begun, is for ever."""
        if self._closed:
            return 0.0
        if not batch:
            return None
        is_full = sum(entry.job.images for entry in batch) >= most_images
        if is_full or batch[0].job.group is None or self._images_in_parts:
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
        for entry in entries:
            self._count(entry, -1)

    def _count(self, entry: Entry, sign: int) -> None:
        self._bytes += sign * entry.job.nbytes
        self._images += sign * entry.left
        if entry.parts is not None:
            self._images_in_parts += sign * entry.left


def _of_one_group(entries: Iterable[Entry], most_images: int) -> list[Entry]:
    """The first entry, and those that a batch has room for beside it."""
    batch: list[Entry] = []
    room = most_images
    for entry in entries:
        if batch and (entry.job.group != batch[0].job.group or entry.job.images > room):
            continue
        batch.append(entry)
        room -= entry.job.images
        if room <= 0 or entry.job.group is None:
            break
    return batch


def _overloaded(reason: str) -> OverloadError:
    return OverloadError(f"{reason} already wait for the model; try again later")


def _fail_late(entries: list[Entry]) -> None:
    """Outside of the lock: a future calls those who wait for it."""
    for entry in entries:
        if entry.begins():
            entry.future.set_exception(DeadlineError("the time for an answer was over before its turn came"))
