"""One thread that owns the use of one artifact, fed by a bounded queue.

Two kinds of state are kept apart. The state of the model (weights, metadata) is the `Artifact`: loaded once,
never changed. The state of an instance is what a thread makes of it: TorchScript's execution plans, cuDNN's
handles and plans, the queue of jobs. All of the latter belong to one thread, so the model is loaded, warmed
and called in that thread and in no other, and the event loop only ever hands over jobs.

Jobs that wait are taken together: nobody waits for a batch to fill up unless `max_delay` says so, and a busy
model finds more of them when it is free.
"""

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from enum import IntEnum
from typing import Any, TypeVar

import torch

from lensbox.runtime import Artifact
from lensbox.serve.engine.batch_sizes import largest_batch
from lensbox.serve.engine.errors import NotReadyError, OverloadError
from lensbox.serve.engine.job_queue import ClosedError, Entry, JobQueue
from lensbox.serve.engine.jobs import Job
from lensbox.serve.settings import Settings

_log = logging.getLogger(__name__)

_PACE_WEIGHT = 0.1

Result = TypeVar("Result")


class State(IntEnum):
    """Where an instance stands. It only ever moves forward."""

    LOADING = 0
    READY = 1
    STOPPED = 2
    FAILED = 3


class Instance:
    """The thread, its queue and its state.

    load: called once, in the thread; returns the artifact, warmed up, or raises. settings: the bounds of the
        queue and of batches.
    on_started: called once in the thread with None when the model is ready, else with load's exception.
    on_batch: called in the thread after each batch, with its number of images, the seconds that it took, and
        those that each of its jobs had waited.
    receive: as for `JobQueue`, where jobs come from other processes. The thread waits in it, and alone
        submits.
    """

    def __init__(
        self,
        load: Callable[[], Artifact],
        settings: Settings,
        on_started: Callable[[Exception | None], None],
        on_batch: Callable[[int, float, list[float]], None] = lambda images, seconds, waited: None,
        receive: Callable[[float], None] | None = None,
    ) -> None:
        self._load = load
        self._on_started = on_started
        self._on_batch = on_batch
        self._settings = settings
        self._queue = JobQueue(settings.queue_size, settings.queue_bytes, receive)
        # A daemon: a device that never answers must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="lensbox-inference", daemon=True)
        self._state = State.LOADING
        self._state_lock = threading.Lock()
        self._failure = ""
        self._running = 0  # images
        self._largest = 1  # images of one call, once the model is loaded
        self._call_limit = math.inf  # seconds
        self._call_begun = math.inf  # of the call that the model is in, on the clock of `time.monotonic`
        self._stuck_call = math.inf  # the last one that the log has heard of
        self._seconds_an_image = 0.0
        self._artifact: Artifact | None = None

    def start(self) -> None:
        """Starts the thread, which begins to load the model."""
        self._thread.start()

    @property
    def state(self) -> State:
        """Where this instance stands now."""
        return self._state

    @property
    def failure(self) -> str:
        """Why the model was given up; "" where it was not."""
        return self._failure

    @property
    def _unusable(self) -> str:
        """What a request is told once the model was given up."""
        return f"the model cannot be used: {self._failure}"

    @property
    def missing(self) -> list[str]:
        """Why there is no model, if there is none."""
        try:
            self.ready_artifact()
        except NotReadyError as error:
            return [str(error)]
        return []

    @property
    def stuck(self) -> str:
        """Why the model counts as stuck in a call, as on a GPU that is gone; "" while it does not.

        Once it returns after all, it does no longer.
        """
        begun, limit = self._call_begun, self._call_limit
        if time.monotonic() - begun <= limit:
            return ""
        reason = f"the model has not returned from a call for {limit:g} seconds; restart the service"
        if begun != self._stuck_call:
            self._stuck_call = begun
            _log.error(reason)
        return reason

    @property
    def lost(self) -> str:
        """Why the model that was there has to be loaded anew, by another process; "" while it has not."""
        if self._state is State.FAILED and self._artifact is not None:
            return self._unusable
        return self.stuck

    def join(self, timeout: float) -> bool:
        """Waits until the model has been given up; False if time ran out."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def loaded(self) -> bool:
        """Whether there is a model, ready or not."""
        return self._artifact is not None

    @property
    def device(self) -> torch.device | None:
        """What the model computes on; None before it is loaded."""
        return None if self._artifact is None else self._artifact.device

    def ready_artifact(self) -> Artifact:
        """The loaded artifact, for its metadata. Raises NotReadyError, which says why there is none."""
        if self._state is State.FAILED:
            raise NotReadyError(self._unusable)
        if self._state is State.STOPPED:
            raise NotReadyError("the service is shutting down")
        if self._state is State.LOADING or self._artifact is None:
            raise NotReadyError("the model is still loading")
        if stuck := self.stuck:
            raise NotReadyError(stuck)
        return self._artifact

    @property
    def waiting(self) -> int:
        """Jobs in the queue, without those that run."""
        return len(self._queue)

    def check_room(self, deadline: float = math.inf, requests: int = 0) -> None:
        """Raises OverloadError if `submit` would: asked before work is spent on decoding.

        A job is refused where those before it take more than half of its time. Else, once more comes than can
        be done, all would wait until they are late, and nobody would get an answer.
        """
        self._check_time(deadline, 1)
        self._queue.check_room()

    def submit(
        self, job: Job[Result], deadline: float = math.inf, asked: float | None = None
    ) -> "Future[Result]":
        """Queues a job; cancelling the future before its turn drops the job.

        A job of more images than one call takes is computed in parts, has a turn for each, and can be
        cancelled until the last. deadline: on the clock of `time.monotonic`; what has its turn later is not
        computed, and its future raises DeadlineError. asked: on the same clock, since when the job waits;
        None: since now. Raises NotReadyError, or OverloadError when the queue is full.
        """
        self.ready_artifact()
        self._check_time(deadline, job.images)
        future: Future[Result] = Future()
        parts = job.parts(self._largest) if job.images > self._largest else None
        try:
            self._queue.put(Entry(job, future, deadline, parts, time.monotonic() if asked is None else asked))
        except ClosedError:
            self.ready_artifact()
            raise
        return future

    def stop(self, timeout: float) -> bool:
        """Refuses new jobs, finishes those in the queue, ends the thread. Blocks; False if time ran out."""
        self._advance(State.STOPPED)
        self._queue.close()
        return self.join(timeout)

    def _run(self) -> None:
        with torch.inference_mode():
            artifact = self._start_up()
            if artifact is None:
                return
            while (batch := self._queue.take(self._largest, self._settings.max_delay / 1000)) is not None:
                begun = time.monotonic()
                self._running = sum(entry.left for entry in batch)
                images = min(self._running, self._largest)
                waited = [begun - entry.queued for entry in batch if not entry.results]
                if batch[0].parts is None:
                    self._answer(artifact, batch)
                else:
                    self._compute_part(artifact, batch[0], batch[0].parts)
                seconds = time.monotonic() - begun
                self._on_batch(images, seconds, waited)
                # The last ten or so batches count; the first is all there is.
                weight = _PACE_WEIGHT if self._seconds_an_image else 1.0
                self._seconds_an_image += weight * (seconds / images - self._seconds_an_image)
                self._running = 0
                # Kept, the last images would stay in memory until the next ones come.
                del batch

    def _start_up(self) -> Artifact | None:
        begun = time.monotonic()
        try:
            self._artifact = self._load()
        except Exception as error:
            self._fail(str(error) or type(error).__name__)
            self._on_started(error)
            return None
        self._largest = self._settings.max_batch or largest_batch(self._artifact.device)
        self._call_limit = self._settings.call_limit(time.monotonic() - begun)
        self._advance(State.READY)
        self._on_started(None)
        return self._artifact

    def _check_time(self, deadline: float, images: int) -> None:
        """Raises OverloadError where a job of so many images would wait for too long."""
        before = self._queue.images + self._running
        if images <= self._largest:
            # It waits for those of its kind, for one part of a large job before each batch of them, and for
            # what runs.
            before = min(before, 2 * (self._queue.images_before_small + self._largest))
        expected = self._seconds_an_image * before
        if 0 < deadline - time.monotonic() < 2 * expected:
            raise OverloadError(
                f"the jobs before it take {expected:.2f} seconds, more than half of its time; try again later"
            )

    def _answer(self, artifact: Artifact, batch: Sequence[Entry]) -> None:
        try:
            results = self._computed(artifact, [entry.job for entry in batch])
        except Exception as error:
            if self._check_model(artifact) and len(batch) > 1:
                # One of them was bad, or they were too many at once: the others must not pay for it.
                for entry in batch:
                    self._answer(artifact, [entry])
                return
            for entry in batch:
                entry.future.set_exception(error)
        else:
            for entry, result in zip(batch, results, strict=True):
                entry.future.set_result(result)

    def _compute_part(self, artifact: Artifact, entry: Entry, parts: Iterator[Job[Any]]) -> None:
        """One call of the model for a large job, which answers it or gives it back to the queue."""
        try:
            part = next(parts)
            entry.results += self._computed(artifact, [part])
            entry.left -= part.images
            if entry.left:
                self._queue.put_back(entry)
                return
            result = entry.job.joined(entry.results)
        except Exception as error:
            self._check_model(artifact)
            if entry.begins():
                entry.future.set_exception(error)
        else:
            if entry.begins():
                entry.future.set_result(result)

    def _computed(self, artifact: Artifact, jobs: Sequence[Job[Any]]) -> Sequence[Any]:
        with self._call():
            return jobs[0].run(artifact, jobs)

    @contextlib.contextmanager
    def _call(self) -> Iterator[None]:
        """Around a call of the model: `stuck` tells if it takes too long."""
        self._call_begun = time.monotonic()
        try:
            yield
        finally:
            self._call_begun = math.inf

    def _check_model(self, artifact: Artifact) -> bool:
        """Whether the model is as good as before a failure. Gives it up if it fails its self-test, too.

        A CUDA error such as an illegal access ruins the context, and every later call in this process fails.
        TorchScript wraps such errors, so their type tells nothing. Once this instance has given up, /readyz
        answers 503, and whatever watches the process starts a new one.
        """
        if self._state is State.FAILED:
            return False
        try:
            with self._call():
                failures = artifact.self_test().failures
        except Exception as error:
            _log.exception("the self-test after a failed request failed")
            failures = [type(error).__name__]
        if failures:
            self._fail(f"after an error it fails its self-test ({'; '.join(failures)}); restart the service")
        return not failures

    def _fail(self, reason: str) -> None:
        self._failure = reason
        self._advance(State.FAILED)
        self._queue.close()
        for entry in self._queue.take_all():
            entry.future.set_exception(NotReadyError(self._unusable))

    def _advance(self, state: State) -> None:
        with self._state_lock:
            self._state = max(self._state, state)  # `stop` may come before the model is ready
