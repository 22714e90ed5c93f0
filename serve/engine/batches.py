"""Take batches of jobs from a queue, prepare them, compute them, and answer the jobs.

A batch is whatever is queued when the model becomes free. While the model computes, two other threads prepare
the next two batches, if their jobs have a preparation: on an H200 one thread could decode 8,800 photographs a
second, two 10,800. If the model is free when a batch is prepared, the thread that prepared it takes the next
batch by itself: two threads that wake each other would leave the model idle for 0.2 ms.

Of two batches that are ready, the second is launched on a GPU before the first is answered: answers, messages
and metrics take the first thread about as long as the GPU computes.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple, cast

from lensbox.runtime import Artifact
from lensbox.serve.engine.job_queue import Entry, JobQueue
from lensbox.serve.observability.metrics import Metrics

_PACE_WEIGHT = 0.1
_PREPARED = 2  # batches that are prepared at a time


class _Batch(NamedTuple):
    """A batch taken from the queue.

    images: their number. taken: time of `time.monotonic`. prepared: the result of the jobs' `prepare`, if
    they have one.
    """

    entries: list[Entry]
    images: int
    taken: float
    prepared: "Future[Any] | None"

    @property
    def is_ready(self) -> bool:
        return self.prepared is None or self.prepared.done()


class _Computed(NamedTuple):
    """A batch that is computed and not answered.

    answers: calls that end the jobs. seconds: it took.
    """

    batch: _Batch
    answers: "list[Callable[[], None]]"
    seconds: float


class Batches:
    """The batches of one model, computed in one thread.

    call: a context for each call of the model. check: called after a failure; returns whether the model can
    still be used.
    """

    def __init__(
        self,
        queue: JobQueue,
        metrics: Metrics,
        call: Callable[[], AbstractContextManager[None]],
        check: Callable[[Artifact], bool],
    ) -> None:
        self._queue = queue
        self._metrics = metrics
        self._call = call
        self._check = check
        self._preparing = ThreadPoolExecutor(_PREPARED, thread_name_prefix="lensbox-prepare")
        self._lock = threading.Lock()  # of the next one
        self._unfinished: list[_Batch] = []  # in the order in which they are computed
        self._finished = 0.0  # time at which the last batch was finished, of `time.monotonic`
        self._computed: list[_Computed] = []  # at most one
        self.seconds_per_image = 0.0  # exponential moving average over about ten batches

    @property
    def running(self) -> int:
        """Number of images of the jobs that are taken and not finished."""
        return sum(batch.images for batch in self._taken())

    def fail(self, error: Exception) -> None:
        """Fail the jobs that are taken and not answered."""
        batches = [*(computed.batch for computed in self._computed), *self._taken()]
        for entry in (entry for batch in batches for entry in batch.entries):
            with contextlib.suppress(InvalidStateError):  # answered already
                entry.future.set_exception(error)

    def compute(self, artifact: Artifact) -> None:
        """Compute batches until the queue is closed and empty."""
        artifact.watch(lambda: self._while_computing(artifact))
        while True:
            taken = self._taken()
            is_ready = bool(taken) and taken[0].is_ready
            if self._computed and not (is_ready and artifact.device.type == "cuda"):
                self._answer()
            elif is_ready:
                self._compute_batch(artifact, taken[0])
            elif taken:
                with self._call():
                    self._queue.wait_for(cast("Future[Any]", taken[0].prepared))
            elif not self._take(artifact):
                return
            del taken  # release the images when they are computed

    def _take(self, artifact: Artifact, blocks: bool = True) -> bool:
        """Take a batch, and begin its preparation. Return False when the queue is closed and empty."""
        entries = self._queue.take(artifact.largest_batch, self.running, blocks)
        if entries:
            self._begin(artifact, entries)
        return entries is not None

    def _while_computing(self, artifact: Artifact) -> None:
        """Answer the batch before the one that the device computes, and begin the one after it."""
        self._answer()
        taken = self._taken()
        if len(taken) <= _PREPARED and taken[0].prepared is not None:
            self._take(artifact, blocks=False)

    def _taken(self) -> list[_Batch]:
        """Return the batches that are taken and not finished."""
        with self._lock:
            return list(self._unfinished)

    def _begin(self, artifact: Artifact, entries: list[Entry]) -> None:
        """Append a batch to those that are taken, and begin its preparation."""
        now = time.monotonic()
        images = sum(entry.job.images for entry in entries)
        prepared = None
        if entries[0].job.prepares:
            prepared = self._preparing.submit(self._prepare, artifact, entries)
        batch = _Batch(entries, images, now, prepared)
        with self._lock:
            self._unfinished.append(batch)

    def _prepare(self, artifact: Artifact, entries: list[Entry]) -> Any:
        """Prepare a batch, in another thread; then begin the next one if the first thread waits."""
        try:
            return entries[0].job.prepare(artifact, [entry.job for entry in entries])
        finally:
            # If this batch is the only one, the first thread waits for it, and appends nothing meanwhile.
            if [id(batch.entries) for batch in self._taken()] == [id(entries)]:
                following = self._queue.take_to_prepare(artifact.largest_batch, self.running)
                if following:
                    self._begin(artifact, following)

    def _compute_batch(self, artifact: Artifact, batch: _Batch) -> None:
        """Compute the first batch. `_answer` follows."""
        answers = self._answers(artifact, batch.entries, batch.prepared)
        with self._lock:
            del self._unfinished[0]
        now = time.monotonic()
        seconds = now - max(batch.taken, self._finished)
        self._finished = now
        weight = _PACE_WEIGHT if self.seconds_per_image else 1.0
        self.seconds_per_image += weight * (seconds / batch.images - self.seconds_per_image)
        self._answer()  # unless the device has called `_while_computing`
        self._computed.append(_Computed(batch, answers, seconds))

    def _answer(self) -> None:
        """Answer the batch that is computed, if there is one, and report it."""
        for batch, answers, seconds in self._computed:
            for answer in answers:
                answer()
            self._queue.receive()  # sends the answers, before metrics and a wait
            waited = [batch.taken - entry.queued for entry in batch.entries]
            self._metrics.batch_computed(batch.images, seconds, waited)
        self._computed.clear()

    def _answers(
        self, artifact: Artifact, batch: Sequence[Entry], prepared: "Future[Any] | None" = None
    ) -> "list[Callable[[], None]]":
        """Compute jobs. Return the calls that answer them."""
        jobs = [entry.job for entry in batch]
        try:
            with self._call():
                results = jobs[0].run(artifact, jobs, None if prepared is None else prepared.result())
            if len(results) != len(jobs):
                raise RuntimeError(f"the detector must return {len(jobs)} results, got {len(results)}")
        except Exception as error:
            if self._check(artifact) and len(batch) > 1:
                # A bad job, or too little memory: compute each job alone, so that only a bad job fails.
                return [answer for entry in batch for answer in self._answers(artifact, [entry])]
            return [partial(entry.future.set_exception, error) for entry in batch]
        pairs = zip(batch, results, strict=True)
        return [partial(entry.future.set_result, result) for entry, result in pairs]
