"""The loop of an engine: take a batch, launch it, answer the one before, begin the next preparation, fetch.

A batch is whatever is queued when the model becomes free. Two other threads prepare the next two batches, if
their jobs have a preparation: on an H200 one thread could decode 8,800 photographs a second, two 10,800.
"""

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from lensbox.runtime import Artifact
from lensbox.serve.engine.job_queue import LEAST_PREPARED, Entry, JobQueue, Source
from lensbox.serve.observability.metrics import Metrics

_PACE_WEIGHT = 0.1
_PREPARED = 2  # batches that are prepared at a time
_LOOK = 1.0  # seconds between checks for a closed queue


@dataclass
class _Batch:
    """A batch taken from the queue. taken: time of `time.monotonic`. prepared: of jobs with a preparation.

    Once the batch is computed, results has a result or an exception for each job. seconds: it took.
    """

    entries: list[Entry]
    images: int
    taken: float
    prepared: "Future[Any] | None"
    results: list[Any] = field(default_factory=list)
    seconds: float = 0.0


class Batches:
    """The batches of one model, computed in one thread.

    call: a context for each call of the model. check: called after a failure; returns whether the model can
    still be used.
    """

    def __init__(
        self,
        queue: JobQueue,
        source: Source,
        metrics: Metrics,
        call: Callable[[], AbstractContextManager[None]],
        check: Callable[[Artifact], bool],
    ) -> None:
        self._queue = queue
        self._source = source
        self._metrics = metrics
        self._call = call
        self._check = check
        self._preparing = ThreadPoolExecutor(_PREPARED, thread_name_prefix="lensbox-prepare")
        self._taken: deque[_Batch] = deque()  # the first one is computed next
        self._finished = 0.0  # time at which the last batch was finished, of `time.monotonic`
        self._unanswered: list[Entry] = []  # that were taken
        self.running = 0  # images that are taken and not computed
        self.seconds_per_image = 0.0  # exponential moving average over about ten batches

    def fail(self, error: Exception) -> None:
        """Fail the jobs that are taken and not answered."""
        for entry in self._unanswered:
            entry.answer(error)

    def compute(self, artifact: Artifact) -> None:
        """Compute batches until the queue is closed and empty."""
        overlaps = artifact.device.type == "cuda"  # a CPU has computed when a launch returns
        computed: _Batch | None = None
        while True:
            if not self._taken and (computed is None or overlaps):
                self._source.receive(0.0)
                self._take(artifact)
            batch = self._taken[0] if self._taken else None
            is_ready = batch is not None and (batch.prepared is None or batch.prepared.done())
            if computed is not None and not (is_ready and overlaps):
                self._answer(computed)
                computed = None
            elif batch is None:
                if self._queue.closed and not len(self._queue):
                    return
                self._source.receive(_LOOK)
            elif not is_ready:
                self._take(artifact, min(LEAST_PREPARED, artifact.largest_batch))
                if batch.prepared is not None and not batch.prepared.done():
                    with self._call():
                        self._source.receive(_LOOK)
            else:
                self._taken.popleft()
                launched = self._launch(artifact, batch)
                if computed is not None:
                    self._answer(computed)
                if batch.prepared is not None:
                    self._source.receive(0.0)
                    self._take(artifact)
                self._fetch(artifact, batch, launched)
                computed = batch
                del batch, launched  # release the images

    def _take(self, artifact: Artifact, least_images: int = 1) -> None:
        """Take a batch, if there is one, and begin its preparation, unless enough are taken."""
        if len(self._taken) >= _PREPARED:
            return
        entries = self._queue.take(artifact.largest_batch, self.running, least_images)
        if not entries:
            return
        self._unanswered += entries
        now, images, prepared = time.monotonic(), sum(entry.job.images for entry in entries), None
        if entries[0].job.prepares:
            jobs = [entry.job for entry in entries]
            prepared = self._preparing.submit(entries[0].job.prepare, artifact, jobs)
            prepared.add_done_callback(lambda _: self._source.wake())
        self.running += images
        self._taken.append(_Batch(entries, images, now, prepared))

    def _launch(self, artifact: Artifact, batch: _Batch) -> Any:
        """Launch a batch. Return what `_fetch` needs, or the exception."""
        jobs = [entry.job for entry in batch.entries]
        try:
            with self._call():
                prepared = None if batch.prepared is None else batch.prepared.result()
                return jobs[0].launch(artifact, jobs, prepared)
        except Exception as error:
            return error

    def _fetch(self, artifact: Artifact, batch: _Batch, launched: Any) -> None:
        """Wait for the results of a batch."""
        batch.results = self._results(artifact, batch.entries, launched)
        batch.prepared, now = None, time.monotonic()
        batch.seconds = now - max(batch.taken, self._finished)
        self._finished = now
        self.running -= batch.images
        weight = _PACE_WEIGHT if self.seconds_per_image else 1.0
        self.seconds_per_image += weight * (batch.seconds / batch.images - self.seconds_per_image)

    def _results(self, artifact: Artifact, entries: list[Entry], launched: Any) -> list[Any]:
        """Return the result of each job, or its exception."""
        jobs = [entry.job for entry in entries]
        try:
            if isinstance(launched, Exception):
                raise launched
            with self._call():
                results = list(jobs[0].fetch(artifact, jobs, launched))
            if len(results) != len(jobs):
                raise RuntimeError(f"the detector must return {len(jobs)} results, got {len(results)}")
            return results
        except Exception as error:
            if not self._check(artifact) or len(entries) == 1:
                return [error] * len(entries)
        # A bad job, or too little memory: compute each job alone, so that only a bad job fails.
        alone = [_Batch([entry], 1, 0.0, None) for entry in entries]
        return [self._results(artifact, one.entries, self._launch(artifact, one))[0] for one in alone]

    def _answer(self, batch: _Batch) -> None:
        """Answer a batch, and report it."""
        for entry, result in zip(batch.entries, batch.results, strict=True):
            entry.answer(result)
        del self._unanswered[: len(batch.entries)]
        self._source.receive(0.0)  # sends the answers, before metrics and a wait
        waited = [batch.taken - entry.queued for entry in batch.entries]
        self._metrics.batch_computed(batch.images, batch.seconds, waited)
