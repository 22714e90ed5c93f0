"""Take batches of jobs from a queue, prepare them, compute them, and answer the jobs.

A batch is whatever is queued when the model becomes free. A
second thread prepares the next batch, if its jobs have a preparation, while the model computes. Two such
batches share the jobs. If the model is free when a batch is prepared, the second thread takes the batch after
it by itself: two threads that wake each other would leave it idle for 0.2 ms.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from lensbox.runtime import Artifact
from lensbox.runtime.device import DeviceTimer
from lensbox.serve.engine.entries import Entry
from lensbox.serve.engine.job_queue import JobQueue
from lensbox.serve.engine.jobs import Job
from lensbox.serve.observability.metrics import Metrics

_PACE_WEIGHT = 0.1


class _Batch(NamedTuple):
    """A batch taken from the queue.

    images: their number. taken: time of `time.monotonic`. waited: seconds in the queue of each job that has
    just begun. prepared: the result of the jobs' `prepare`, if they have one.
    """

    entries: list[Entry]
    images: int
    taken: float
    waited: list[float]
    prepared: "Future[Any] | None"


class Batches:
    """The batches of one model, computed in one thread.

    call: a context for each call of the model. check: called after a failure; returns whether the model can
    still be used.
    """

    def __init__(
        self,
        queue: JobQueue,
        metrics: Metrics | None,
        call: Callable[[], AbstractContextManager[None]],
        check: Callable[[Artifact], bool],
    ) -> None:
        self._queue = queue
        self._metrics = metrics
        self._call = call
        self._check = check
        self._preparing = ThreadPoolExecutor(1, thread_name_prefix="lensbox-prepare")
        self._lock = threading.Lock()  # of the next one
        self._unfinished: list[_Batch] = []  # at most two, the first to be computed first
        self._finished = 0.0  # time at which the last batch was finished, of `time.monotonic`
        self.letterbox: list[DeviceTimer] = []  # of the current batch; used only by the thread that computes
        self.largest = 1  # images per call; set it once the model is loaded
        self.seconds_per_image = 0.0  # exponential moving average over about ten batches

    @property
    def running(self) -> int:
        """Number of images of the jobs that are taken and not finished."""
        return sum(batch.images for batch in self._taken())

    def fail(self, error: Exception) -> None:
        """Fail the jobs that are taken and not answered."""
        for entry in (entry for batch in self._taken() for entry in batch.entries):
            with contextlib.suppress(InvalidStateError):  # answered already
                entry.future.set_exception(error)

    def compute(self, artifact: Artifact) -> None:
        """Compute batches until the queue is closed and empty.

        A prepared batch is computed after the next batch is taken, and while that one is prepared.
        """
        while True:
            is_ahead = self._wait_for_preparation()
            if len(self._taken()) < 2:
                entries = self._queue.take(self.largest, self.running, blocks=not is_ahead)
                if entries is None and not is_ahead:
                    return
                if entries:
                    self._begin(artifact, entries)
                del entries  # release the images when they are computed
            if is_ahead:
                self._finish(artifact)
            if any(batch.prepared is None for batch in self._taken()[:1]):
                self._finish(artifact)

    def _wait_for_preparation(self) -> bool:
        """Wait until the first batch is prepared. Return whether there is one."""
        taken = self._taken()
        for batch in taken[:1]:
            if batch.prepared is not None:
                with self._call():
                    self._queue.wait_for(batch.prepared)
        return bool(taken)

    def _taken(self) -> list[_Batch]:
        """Return the batches that are taken and not finished."""
        with self._lock:
            return list(self._unfinished)

    def _begin(self, artifact: Artifact, entries: list[Entry]) -> None:
        """Append a batch to those that are taken, and begin its preparation."""
        now = time.monotonic()
        images = sum(entry.job.images for entry in entries)
        waited = [now - entry.queued for entry in entries if not entry.part]
        prepared = None
        if entries[0].job.prepares:
            prepared = self._preparing.submit(self._prepare, artifact, entries)
        batch = _Batch(entries, images, now, waited, prepared)
        with self._lock:
            self._unfinished.append(batch)

    def _prepare(self, artifact: Artifact, entries: list[Entry]) -> Any:
        """Prepare a batch, in the second thread; then begin the next one if the first thread waits."""
        try:
            return entries[0].job.prepare(artifact, [entry.job for entry in entries])
        finally:
            # If this batch is the only one, the first thread waits for it, and appends nothing meanwhile.
            if [id(batch.entries) for batch in self._taken()] == [id(entries)]:
                following = self._queue.take_to_prepare(self.largest, self.running)
                if following:
                    self._begin(artifact, following)

    def _finish(self, artifact: Artifact) -> None:
        """Compute the first batch."""
        batch = self._taken()[0]
        self._answer(artifact, batch.entries, batch.prepared)
        with self._lock:
            del self._unfinished[0]
        self._queue.receive()  # sends the answers, before metrics and a wait for the next preparation
        now = time.monotonic()
        seconds = now - max(batch.taken, self._finished)
        self._finished = now
        if self._metrics is not None:
            letterbox = sum(map(_seconds, self.letterbox))
            self._metrics.batch_computed(batch.images, seconds, batch.waited, letterbox)
        self.letterbox.clear()
        weight = _PACE_WEIGHT if self.seconds_per_image else 1.0
        self.seconds_per_image += weight * (seconds / batch.images - self.seconds_per_image)

    def _answer(
        self,
        artifact: Artifact,
        batch: Sequence[Entry],
        prepared: "Future[Any] | None" = None,
    ) -> None:
        try:
            results = self._computed(artifact, [entry.job for entry in batch], prepared)
        except Exception as error:
            if self._check(artifact) and len(batch) > 1:
                # A bad job, or too little memory: compute each job alone, so that only a bad job fails.
                for entry in batch:
                    self._answer(artifact, [entry])
                return
            for entry in batch:
                entry.future.set_exception(error)
        else:
            for entry, result in zip(batch, results, strict=True):
                entry.future.set_result(result)

    def _computed(
        self, artifact: Artifact, jobs: Sequence[Job[Any]], prepared: "Future[Any] | None" = None
    ) -> Sequence[Any]:
        with self._call():
            results = jobs[0].run(artifact, jobs, None if prepared is None else prepared.result())
        if len(results) != len(jobs):
            raise RuntimeError(f"the detector must return {len(jobs)} results, got {len(results)}")
        return results


def _seconds(timer: DeviceTimer) -> float:
    try:
        return timer.seconds()
    except RuntimeError:  # another job of the batch has ruined the CUDA context
        return 0.0
