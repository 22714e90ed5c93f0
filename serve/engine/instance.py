"""An engine in this process: one thread that owns one artifact, fed by a queue.

The model (weights, metadata) is loaded once and never changes. TorchScript's execution plans, cuDNN's handles
and the queue belong to one thread: the model is loaded, warmed up and called in that thread alone. The event
loop only submits jobs.

The thread is a loop: take a batch, launch it, answer the one before, fetch. A batch is whatever is queued
when the model becomes free. Two other threads prepare the next two batches, if their jobs have a preparation:
on an H200 one thread could decode 8,800 photographs a second, two 10,800.
"""

import asyncio
import contextlib
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from lensbox.runtime import Artifact
from lensbox.serve.engine.engines import Engine
from lensbox.serve.engine.job_queue import LEAST_PREPARED, Entry, JobQueue, Source, Wakes
from lensbox.serve.engine.jobs import Job, settle
from lensbox.serve.errors import NotReadyError, OverloadError
from lensbox.serve.observability.metrics import Metrics
from lensbox.serve.settings import Settings

_log = logging.getLogger(__name__)

Result = TypeVar("Result")

_PACE_WEIGHT = 0.1
_PREPARED = 2  # batches that are prepared at a time
_LOOK = 1.0  # seconds between checks for a closed queue


@dataclass
class _Batch:
    """A batch taken from the queue. taken: time of `time.monotonic`. prepared: of jobs with a preparation.

    Once the batch is computed, results has a result or an exception for each job. seconds: it took.
    """

    entries: list[Entry]
    jobs: list[Job[Any]]
    images: int
    taken: float
    prepared: "Future[Any] | None"
    results: list[Any] = field(default_factory=list)
    seconds: float = 0.0


class Instance(Engine):
    """The thread and its queue.

    load: called once, in the thread; returns the artifact, warmed up, or raises. settings: limits of the
        queue and of batches.
    metrics: gets batches and device memory. source: see `Source`.

    started: set once the model is ready, or has failed to load. failure: the reason why the model is out of
        use; "" if it is in use.
    """

    def __init__(
        self,
        load: Callable[[], Artifact],
        settings: Settings,
        metrics: Metrics,
        source: Source | None = None,
    ) -> None:
        self._load = load
        self._settings = settings
        self._metrics = metrics
        self._source = source or Wakes()
        self._queue = JobQueue(settings.queue_bytes)
        # A daemon thread: a device that hangs must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="lensbox-inference", daemon=True)
        self._preparing = ThreadPoolExecutor(_PREPARED, thread_name_prefix="lensbox-prepare")
        self._artifact: Artifact | None = None
        self.started = threading.Event()
        self.failure = ""
        self._taken: deque[_Batch] = deque()  # the first one is computed next
        self._unanswered: list[Entry] = []  # that were taken
        self._running = 0  # images that are taken and not computed
        self._finished = 0.0  # when the last batch was finished; all times are of `time.monotonic`
        self.seconds_per_image = 0.0  # exponential moving average over about ten batches
        self._call_limit = math.inf  # seconds
        self._call_begun = math.inf  # start of the current call of the model
        self._logged_call = math.inf  # start of the last call that was logged as stuck

    def start(self) -> None:
        """Start the thread, which loads the model."""
        self._thread.start()

    def join(self, timeout: float) -> bool:
        """Wait until the thread has ended; return False after `timeout` seconds."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def stop(self, timeout: float) -> bool:
        """Refuse new jobs, finish queued jobs, end the thread; return False after `timeout` seconds."""
        self._queue.close("the service is shutting down")
        self._source.wake()
        return self.join(timeout)

    @property
    def stuck(self) -> str:
        """The reason if a call of the model counts as stuck (for example, after a lost GPU); "" otherwise."""
        begun, limit = self._call_begun, self._call_limit
        if time.monotonic() - begun <= limit:
            return ""
        reason = f"a call of the model has run for more than {limit:g} seconds; restart the service"
        if begun != self._logged_call:
            self._logged_call = begun
            _log.error(reason)
        return reason

    @property
    def jobs(self) -> int:
        """Number of queued jobs and of images being computed."""
        return len(self._queue) + self._running

    def ready_artifact(self) -> Artifact:
        """Return the loaded artifact, for its metadata. Raise NotReadyError with the reason if not ready."""
        if self._queue.closed:
            raise NotReadyError(self._queue.closed)
        if self._artifact is None:
            raise NotReadyError("the model is still loading")
        if stuck := self.stuck:
            raise NotReadyError(stuck)
        return self._artifact

    async def submit(self, job: Job[Result], deadline: float = math.inf) -> Result:
        """See `Engine.submit`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()

        def answer(result: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(settle, future, result)

        entry = self.enqueue(Entry(job, answer, deadline))
        self._source.wake()
        try:
            return await future
        finally:
            entry.is_cancelled = True

    def enqueue(self, entry: Entry) -> Entry:
        """Queue a job, without waking the thread. Raise NotReadyError and OverloadError.

        Refuse a job that would wait for more than half of its time: otherwise every job would miss its
        deadline under overload, and no client would get an answer.
        """
        expected = self.seconds_per_image * (self._queue.images + self._running)
        if 0 < entry.deadline - time.monotonic() < 2 * expected:
            raise OverloadError(
                f"queued jobs take {expected:.2f} seconds, more than half of the time limit; try again later"
            )
        self._queue.put(entry)
        return entry

    # --- the thread ---

    def _run(self) -> None:
        try:
            with torch.inference_mode():
                artifact = self._start_up()
                self.started.set()
                if artifact is not None:
                    self._compute(artifact)
        except BaseException as error:
            # Without this thread, requests would wait for their deadlines while health checks succeed.
            _log.exception("the inference thread failed")
            self._fail(f"the inference thread failed ({type(error).__name__}: {error}); restart the service")
            self.started.set()
            for entry in self._unanswered:
                entry.answer(NotReadyError(self._queue.closed))

    def _start_up(self) -> Artifact | None:
        begun = time.monotonic()
        try:
            artifact = self._load()
        except Exception as error:
            self._fail(str(error) or type(error).__name__)
            return None
        self._metrics.model = self._metrics.model or artifact.metadata.name
        self._metrics.watch_device(artifact.device)
        self._call_limit = self._settings.call_limit(time.monotonic() - begun)
        self._artifact = artifact  # from now on the engine is ready
        return artifact

    def _compute(self, artifact: Artifact) -> None:
        """Compute batches until the queue is closed and empty."""
        overlaps = artifact.device.type == "cuda"  # a CPU has computed when a launch returns
        launched: tuple[_Batch, Any] | None = None
        computed: _Batch | None = None
        while True:
            self._source.receive(0.0)
            is_busy = launched is not None or (computed is not None and not overlaps)
            self._take(artifact, is_busy)
            batch = self._taken[0] if self._taken else None
            is_ready = batch is not None and (batch.prepared is None or batch.prepared.done())
            if batch is not None and is_ready and not is_busy:
                self._taken.popleft()
                launched = batch, self._launch(artifact, batch.jobs, batch.prepared)
            elif computed is not None:
                self._answer(computed)
                computed = None
            elif launched is not None:
                self._fetch(artifact, *launched)
                computed, launched = launched[0], None
            elif batch is not None:
                self._call_begun = batch.taken  # a decoder that hangs counts as stuck, too
                self._source.receive(_LOOK)
            elif self._queue.closed and not len(self._queue):
                return
            else:
                self._source.receive(_LOOK)
            del batch  # release the images

    def _take(self, artifact: Artifact, is_busy: bool) -> None:
        """Take a batch, if there is one, and begin its preparation, unless enough are taken.

        is_busy: take only what has a preparation. Other jobs wait for each other, in one batch.
        """
        if len(self._taken) >= _PREPARED:
            return
        least = min(LEAST_PREPARED, artifact.largest_batch) if self._taken else 1
        entries = self._queue.take(artifact.largest_batch, self._running, least, is_busy)
        if not entries:
            return
        self._unanswered += entries
        jobs, now, prepared = [entry.job for entry in entries], time.monotonic(), None
        images = sum(entry.images for entry in entries)
        if jobs[0].prepares:
            prepared = self._preparing.submit(jobs[0].prepare, artifact, jobs)
            prepared.add_done_callback(lambda _: self._source.wake())
        self._running += images
        self._taken.append(_Batch(entries, jobs, images, now, prepared))

    def _launch(
        self, artifact: Artifact, jobs: list[Job[Any]], preparing: "Future[Any] | None" = None
    ) -> Any:
        """Launch jobs. Return what `_results` needs, or the exception."""
        self._call_begun = time.monotonic()
        try:
            return jobs[0].launch(artifact, jobs, None if preparing is None else preparing.result())
        except Exception as error:
            return error
        finally:
            self._call_begun = math.inf

    def _fetch(self, artifact: Artifact, batch: _Batch, launched: Any) -> None:
        """Wait for the results of a batch."""
        batch.results = self._results(artifact, batch.jobs, launched)
        batch.prepared, now = None, time.monotonic()
        batch.seconds = now - max(batch.taken, self._finished)
        self._finished = now
        self._running -= batch.images
        weight = _PACE_WEIGHT if self.seconds_per_image else 1.0
        self.seconds_per_image += weight * (batch.seconds / batch.images - self.seconds_per_image)

    def _results(self, artifact: Artifact, jobs: list[Job[Any]], launched: Any) -> list[Any]:
        """Return the result of each job, or its exception."""
        self._call_begun = time.monotonic()
        try:
            if isinstance(launched, Exception):
                raise launched
            results = list(jobs[0].fetch(artifact, jobs, launched))
            if len(results) != len(jobs):
                raise RuntimeError(f"the detector must return {len(jobs)} results, got {len(results)}")
            return results
        except Exception as error:
            if not self._is_sound(artifact) or len(jobs) == 1:
                return [error] * len(jobs)
        finally:
            self._call_begun = math.inf
        # A bad job, or too little memory: compute each job alone, so that only a bad job fails.
        return [self._results(artifact, [one], self._launch(artifact, [one]))[0] for one in jobs]

    def _answer(self, batch: _Batch) -> None:
        """Answer a batch, and report it."""
        for entry, result in zip(batch.entries, batch.results, strict=True):
            entry.answer(result)
        del self._unanswered[: len(batch.entries)]
        self._source.receive(0.0)  # sends the answers, before metrics and a wait
        waited = [batch.taken - entry.queued for entry in batch.entries]
        self._metrics.batch_computed(batch.images, batch.seconds, waited)

    def _is_sound(self, artifact: Artifact) -> bool:
        """Return whether the model still passes its self-test after a failure; if not, take it out of use.

        A CUDA error such as an illegal access ruins the context: every later call in this process fails.
        TorchScript wraps such errors, so the exception's type does not show them. `/readyz` and `/livez` then
        answer 503, so that an orchestrator restarts the process.
        """
        if self.failure:
            return False
        try:
            failures = artifact.self_test().failures
        except Exception as error:
            _log.exception("the self-test after a failed request failed")
            failures = [type(error).__name__]
        if failures:
            self._fail(f"the self-test fails after an error ({'; '.join(failures)}); restart the service")
        return not failures

    def _fail(self, reason: str) -> None:
        """Take the model out of use, and fail all queued jobs."""
        self.failure = reason
        self._queue.fail(f"the model cannot be used: {reason}")
