"""One thread that owns the use of one artifact, fed by a bounded queue.

Two kinds of state are kept apart. The state of the model (weights, metadata) is the `Artifact`: loaded once,
never changed. The state of an instance is what a thread makes of it: TorchScript's execution plans, cuDNN's
handles and plans, the queue of jobs. All of the latter belong to one thread, so the model is loaded, warmed
and called in that thread and in no other, and the event loop only ever hands over jobs.

Batching enters at `_next`: jobs are data, so several `DetectJob`s can be taken and answered together.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from lensbox.runtime import Artifact, Detections, Photo

_log = logging.getLogger(__name__)

Result = TypeVar("Result", covariant=True)


class OverloadError(Exception):
    """There is no room for another request."""


class NotReadyError(Exception):
    """The model is not loaded yet, could not be loaded, or has been given up."""


class State(IntEnum):
    """Where an instance stands. It only ever moves forward."""

    LOADING = 0
    READY = 1
    STOPPED = 2
    FAILED = 3


class Job(Protocol[Result]):
    """Something to compute with the model; runs in the instance's thread, in inference mode."""

    def run(self, artifact: Artifact) -> Result: ...


@dataclass(frozen=True)
class DetectJob:
    """What is in one photograph. A threshold of None is the artifact's default."""

    photo: Photo
    score_threshold: float | None
    iou_threshold: float | None

    def run(self, artifact: Artifact) -> Detections:
        return artifact.detect_image(self.photo, self.score_threshold, self.iou_threshold)


@dataclass(frozen=True)
class LossJob:
    """The loss of two box tensors of one shape, [N, 4] or [B, N, 4]."""

    predictions: Tensor
    targets: Tensor

    def run(self, artifact: Artifact) -> float:
        return artifact.loss(self.predictions, self.targets)


class _Entry(NamedTuple):
    job: Job[Any]
    future: Future[Any]


class Instance:
    """The thread, its queue and its state.

    load: called once, in the thread; returns the artifact, warmed up, or raises.
    on_started: called once in the thread with None when the model is ready, else with load's exception.
    """

    def __init__(
        self,
        load: Callable[[], Artifact],
        queue_size: int,
        on_started: Callable[[Exception | None], None],
    ) -> None:
        self._load = load
        self._on_started = on_started
        self._queue: queue.Queue[_Entry | None] = queue.Queue(queue_size)
        # A daemon: a device that never answers must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="lensbox-inference", daemon=True)
        self._state = State.LOADING
        self._state_lock = threading.Lock()
        self._failure = ""
        self._artifact: Artifact | None = None

    def start(self) -> None:
        """Starts the thread, which begins to load the model."""
        self._thread.start()

    @property
    def state(self) -> State:
        """Where this instance stands now."""
        return self._state

    @property
    def loaded(self) -> bool:
        """Whether there is a model, ready or not."""
        return self._artifact is not None

    def ready_artifact(self) -> Artifact:
        """The loaded artifact, for its metadata. Raises NotReadyError, which says why there is none."""
        if self._state is State.FAILED:
            raise NotReadyError(f"the model cannot be used: {self._failure}")
        if self._state is State.STOPPED:
            raise NotReadyError("the service is shutting down")
        if self._state is State.LOADING or self._artifact is None:
            raise NotReadyError("the model is still loading")
        return self._artifact

    @property
    def waiting(self) -> int:
        """Jobs in the queue, without the one that runs."""
        return self._queue.qsize()

    def check_room(self) -> None:
        """Raises OverloadError if `submit` would: asked before work is spent on decoding."""
        if self.waiting >= self._queue.maxsize:
            raise self._overloaded()

    def submit(self, job: Job[Result]) -> "Future[Result]":
        """Queues a job; cancelling the future before its turn drops the job.

        Raises NotReadyError, or OverloadError when the queue is full.
        """
        self.ready_artifact()
        future: Future[Result] = Future()
        try:
            self._queue.put_nowait(_Entry(job, future))
        except queue.Full:
            raise self._overloaded() from None
        return future

    def stop(self, timeout: float) -> bool:
        """Refuses new jobs, finishes those in the queue, ends the thread. Blocks; False if time ran out."""
        deadline = time.monotonic() + timeout
        self._advance(State.STOPPED)
        try:
            self._queue.put(None, timeout=timeout)
        except queue.Full:
            return False
        self._thread.join(max(0.0, deadline - time.monotonic()))
        return not self._thread.is_alive()

    def _overloaded(self) -> OverloadError:
        return OverloadError(f"{self._queue.maxsize} images already wait for the model; try again later")

    def _run(self) -> None:
        with torch.inference_mode():
            if self._start_up():
                while (entry := self._next()) is not None:
                    self._answer(entry)
                    # Kept, the last image would stay in memory until the next one comes.
                    del entry

    def _start_up(self) -> bool:
        try:
            self._artifact = self._load()
        except Exception as error:
            self._fail(str(error) or type(error).__name__)
            self._on_started(error)
            return False
        self._advance(State.READY)
        self._on_started(None)
        return True

    def _next(self) -> _Entry | None:
        """The next job that somebody still waits for; None when the instance is to stop."""
        while (entry := self._queue.get()) is not None:
            if entry.future.set_running_or_notify_cancel():
                return entry
        return None

    def _answer(self, entry: _Entry) -> None:
        assert self._artifact is not None
        try:
            result = entry.job.run(self._artifact)
        except Exception as error:
            self._check_model()
            entry.future.set_exception(error)
        else:
            entry.future.set_result(result)

    def _check_model(self) -> None:
        """Gives the model up if it fails its self-test too.

        A CUDA error such as an illegal access ruins the context, and every later call in this process fails.
        TorchScript wraps such errors, so their type tells nothing. Once this instance has given up, /readyz
        answers 503, and whatever watches the process starts a new one.
        """
        assert self._artifact is not None
        try:
            failures = self._artifact.self_test().failures
        except Exception as error:
            _log.exception("the self-test after a failed request failed")
            failures = [type(error).__name__]
        if failures:
            self._fail(f"after an error it fails its self-test ({'; '.join(failures)}); restart the service")

    def _fail(self, reason: str) -> None:
        self._failure = reason
        self._advance(State.FAILED)

    def _advance(self, state: State) -> None:
        with self._state_lock:
            self._state = max(self._state, state)  # `stop` may come before the model is ready
