"""An engine in this process: one thread that owns one artifact, fed by a queue.

The model (weights, metadata) is loaded once and never changes. TorchScript's execution plans, cuDNN's handles
and the queue belong to one thread: the model is loaded, warmed up and called in that thread alone. The event
loop only submits jobs.
"""

import asyncio
import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch

from lensbox.runtime import Artifact
from lensbox.serve.engine.batches import Batches
from lensbox.serve.engine.engines import Engine
from lensbox.serve.engine.job_queue import Entry, JobQueue, Source, Wakes
from lensbox.serve.engine.jobs import Job
from lensbox.serve.errors import NotReadyError, OverloadError
from lensbox.serve.observability.metrics import Metrics
from lensbox.serve.settings import Settings

_log = logging.getLogger(__name__)

Result = TypeVar("Result")

_SHUTTING_DOWN = "the service is shutting down"


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
        self.batches = Batches(self._queue, self._source, metrics, self._call, self._check_model)
        # A daemon thread: a device that hangs must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="lensbox-inference", daemon=True)
        self._is_stopped = False
        self.started = threading.Event()
        self.failure = ""
        self._call_limit = math.inf  # seconds
        self._call_begun = math.inf  # start of the current call of the model, of `time.monotonic`
        self._logged_call = math.inf  # start of the last call that was logged as stuck
        self._artifact: Artifact | None = None

    def start(self) -> None:
        """Start the thread, which loads the model."""
        self._thread.start()

    def join(self, timeout: float) -> bool:
        """Wait until the thread has ended; return False after `timeout` seconds."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def stop(self, timeout: float) -> bool:
        """Refuse new jobs, finish queued jobs, end the thread; return False after `timeout` seconds."""
        self._is_stopped = True
        self._queue.close(_SHUTTING_DOWN)
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
        return len(self._queue) + self.batches.running

    def ready_artifact(self) -> Artifact:
        """Return the loaded artifact, for its metadata. Raise NotReadyError with the reason if not ready."""
        if self.failure:
            raise NotReadyError(self._unusable)
        if self._is_stopped:
            raise NotReadyError(_SHUTTING_DOWN)
        if self._artifact is None:
            raise NotReadyError("the model is still loading")
        if stuck := self.stuck:
            raise NotReadyError(stuck)
        return self._artifact

    async def submit(self, job: Job[Result], deadline: float = math.inf) -> Result:
        """See `Engine.submit`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()

        def settle(result: Any) -> None:
            if future.done():
                return
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)

        def answer(result: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(settle, result)

        entry = self.enqueue(Entry(job, answer, deadline))
        self._source.wake()
        try:
            return await future
        finally:
            entry.is_cancelled = True

    def enqueue(self, entry: Entry) -> Entry:
        """Queue a job, without waking the thread. Raise NotReadyError and OverloadError."""
        self.ready_artifact()
        self._check_time(entry.deadline)
        self._queue.put(entry)
        return entry

    def _run(self) -> None:
        try:
            with torch.inference_mode():
                artifact = self._start_up()
                self.started.set()
                if artifact is not None:
                    self.batches.compute(artifact)
        except BaseException as error:
            # Without this thread, requests would wait for their deadlines while health checks succeed.
            _log.exception("the inference thread failed")
            self._fail(f"the inference thread failed ({type(error).__name__}: {error}); restart the service")
            self.started.set()
            self.batches.fail(NotReadyError(self._unusable))

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

    def _check_time(self, deadline: float) -> None:
        """Raise OverloadError if a further job would wait for more than half of its time.

        Otherwise every job would miss its deadline under overload, and no client would get an answer.
        """
        expected = self.batches.seconds_per_image * (self._queue.images + self.batches.running)
        if 0 < deadline - time.monotonic() < 2 * expected:
            raise OverloadError(
                f"queued jobs take {expected:.2f} seconds, more than half of the time limit; try again later"
            )

    @contextlib.contextmanager
    def _call(self) -> Iterator[None]:
        """Time a call of the model, for `stuck`."""
        self._call_begun = time.monotonic()
        try:
            yield
        finally:
            self._call_begun = math.inf

    def _check_model(self, artifact: Artifact) -> bool:
        """Return whether the model still passes its self-test after a failure; if not, take it out of use.

        A CUDA error such as an illegal access ruins the context: every later call in this process fails.
        TorchScript wraps such errors, so the exception's type does not show them. `/readyz` and `/livez` then
        answer 503, so that an orchestrator restarts the process.
        """
        if self.failure:
            return False
        try:
            with self._call():
                failures = artifact.self_test().failures
        except Exception as error:
            _log.exception("the self-test after a failed request failed")
            failures = [type(error).__name__]
        if failures:
            self._fail(f"the self-test fails after an error ({'; '.join(failures)}); restart the service")
        return not failures

    @property
    def _unusable(self) -> str:
        return f"the model cannot be used: {self.failure}"

    def _fail(self, reason: str) -> None:
        """Take the model out of use, and fail all queued jobs."""
        self.failure = reason
        self._queue.fail(self._unusable)
