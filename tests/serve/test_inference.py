"""The instance: one thread, a bounded queue, an orderly end."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, wait
from typing import Any

import pytest
import torch

from lensbox.runtime.photo import Photo
from lensbox.serve.inference import DetectJob, Instance, LossJob, NotReadyError, OverloadError, State

_PATIENCE = 60.0
_BOXES = torch.zeros(2, 4)


class Started:
    """Records what `on_started` was called with, and lets a test wait for it."""

    def __init__(self) -> None:
        self.calls: list[Exception | None] = []
        self.event = threading.Event()

    def __call__(self, failure: Exception | None) -> None:
        self.calls.append(failure)
        self.event.set()

    def wait(self) -> None:
        assert self.event.wait(_PATIENCE)


@pytest.fixture
def make(fake: Any) -> Iterator[Callable[..., Instance]]:
    """Makes instances over the fake artifact, started and ready unless told otherwise; stops them all."""
    made: list[Instance] = []

    def make(queue_size: int = 4, ready: bool = True) -> Instance:
        started = Started()
        instance = Instance(lambda: fake, queue_size, started)
        if ready:
            instance.start()
            started.wait()
            made.append(instance)
        return instance

    yield make
    fake.gate.set()
    for instance in made:
        assert instance.stop(_PATIENCE)


def _begin(instance: Instance, fake: Any, wait_until: Callable[..., None]) -> Any:
    """Submits a job and returns its future once the job is running behind the closed gate."""
    fake.gate.clear()
    count = len(fake.calls)
    future = instance.submit(LossJob(_BOXES, _BOXES))
    wait_until(lambda: len(fake.calls) > count)
    return future


def test_jobs_run_in_one_thread_of_their_own(make: Callable[..., Instance], fake: Any) -> None:
    instance = make(queue_size=20)
    futures = [instance.submit(LossJob(_BOXES, _BOXES)) for _ in range(10)]
    image = torch.zeros(3, 5, 7, dtype=torch.uint8)
    found = instance.submit(DetectJob(Photo.of(image), 0.25, None)).result(_PATIENCE)
    assert [future.result(_PATIENCE) for future in futures] == [0.25] * 10
    assert found.boxes.tolist() == [[1, 2, 3, 4]]
    assert fake.calls == [("loss", (2, 4))] * 10 + [("detect", ((3, 5, 7), 0.25, None))]
    assert len(fake.threads) == 1
    assert threading.get_ident() not in fake.threads


def test_nothing_is_accepted_before_the_model_is_loaded(fake: Any) -> None:
    loading, started = threading.Event(), Started()

    def load() -> Any:
        assert loading.wait(_PATIENCE)
        return fake

    instance = Instance(load, 1, started)
    instance.start()
    before = instance.state
    assert before is State.LOADING
    with pytest.raises(NotReadyError, match="still loading"):
        instance.submit(LossJob(_BOXES, _BOXES))
    loading.set()
    started.wait()
    assert instance.state is State.READY
    assert instance.ready_artifact() is fake
    assert started.calls == [None]
    assert instance.stop(_PATIENCE)


def test_a_failed_load_is_reported_and_remembered() -> None:
    started, failure = Started(), RuntimeError("no such file")

    def load() -> Any:
        raise failure

    instance = Instance(load, 1, started)
    instance.start()
    started.wait()
    assert started.calls == [failure]
    assert instance.state is State.FAILED
    with pytest.raises(NotReadyError, match="cannot be used: no such file"):
        instance.ready_artifact()
    assert instance.stop(_PATIENCE)
    assert instance.state is State.FAILED


def test_a_full_queue_refuses(
    make: Callable[..., Instance], fake: Any, wait_until: Callable[..., None]
) -> None:
    instance = make(queue_size=2)
    running = _begin(instance, fake, wait_until)
    waiting = [instance.submit(LossJob(_BOXES, _BOXES))]
    instance.check_room()
    waiting.append(instance.submit(LossJob(_BOXES, _BOXES)))
    for refused in (instance.check_room, lambda: instance.submit(LossJob(_BOXES, _BOXES))):
        with pytest.raises(OverloadError, match="2 images already wait"):
            refused()
    fake.gate.set()
    assert [future.result(_PATIENCE) for future in (running, *waiting)] == [0.25] * 3
    assert instance.submit(LossJob(_BOXES, _BOXES)).result(_PATIENCE) == 0.25


def test_a_cancelled_job_never_runs(
    make: Callable[..., Instance], fake: Any, wait_until: Callable[..., None]
) -> None:
    instance = make()
    running = _begin(instance, fake, wait_until)
    dropped = instance.submit(DetectJob(Photo.of(torch.zeros(1, 1, 1, dtype=torch.uint8)), None, None))
    last = instance.submit(LossJob(_BOXES, _BOXES))
    assert dropped.cancel()
    assert not running.cancel()
    fake.gate.set()
    assert last.result(_PATIENCE) == 0.25
    assert [name for name, _ in fake.calls] == ["loss", "loss"]
    with pytest.raises(CancelledError):
        dropped.result()


def test_a_failing_job_fails_alone(make: Callable[..., Instance], fake: Any) -> None:
    instance = make()
    fake.error = ValueError("a bad image")
    with pytest.raises(ValueError, match="a bad image"):
        instance.submit(LossJob(_BOXES, _BOXES)).result(_PATIENCE)
    fake.error = None
    assert instance.submit(LossJob(_BOXES, _BOXES)).result(_PATIENCE) == 0.25
    assert instance.state is State.READY


@pytest.mark.parametrize("failures", [["boxes differ"], None])
def test_a_model_that_no_longer_passes_its_self_test_is_given_up(
    make: Callable[..., Instance], fake: Any, failures: list[str] | None
) -> None:
    instance = make()
    fake.error = RuntimeError("CUDA error: an illegal memory access was encountered")
    if failures is None:
        fake.self_test_error = fake.error
    else:
        fake.self_test_failures = failures
    with pytest.raises(RuntimeError, match="illegal memory access"):
        instance.submit(LossJob(_BOXES, _BOXES)).result(_PATIENCE)
    assert instance.state is State.FAILED
    named = "boxes differ" if failures else "RuntimeError"
    with pytest.raises(NotReadyError, match=rf"fails its self-test \({named}\); restart the service"):
        instance.submit(LossJob(_BOXES, _BOXES))


def test_stop_finishes_what_waits(
    make: Callable[..., Instance], fake: Any, wait_until: Callable[..., None]
) -> None:
    instance = make()
    futures = [_begin(instance, fake, wait_until)]
    futures += [instance.submit(LossJob(_BOXES, _BOXES)) for _ in range(3)]
    stopped: list[bool] = []
    stopper = threading.Thread(target=lambda: stopped.append(instance.stop(_PATIENCE)))
    stopper.start()
    wait_until(lambda: instance.state is State.STOPPED)
    with pytest.raises(NotReadyError, match="shutting down"):
        instance.submit(LossJob(_BOXES, _BOXES))
    assert not any(future.done() for future in futures)
    fake.gate.set()
    stopper.join(_PATIENCE)
    assert stopped == [True]
    assert wait(futures, 0).not_done == set()
    assert [future.result() for future in futures] == [0.25] * 4


def test_stop_gives_up_on_a_stuck_device(fake: Any, wait_until: Callable[..., None]) -> None:
    started = Started()
    instance = Instance(lambda: fake, 1, started)
    instance.start()
    started.wait()
    running = _begin(instance, fake, wait_until)
    assert not instance.stop(0.01)  # the end of the queue has its place, the thread does not end
    assert not instance.stop(0.01)  # the queue is full
    fake.gate.set()
    assert running.result(_PATIENCE) == 0.25


def test_stop_during_the_load(fake: Any) -> None:
    loading, started = threading.Event(), Started()

    def load() -> Any:
        assert loading.wait(_PATIENCE)
        return fake

    instance = Instance(load, 1, started)
    instance.start()
    assert not instance.stop(0.01)
    loading.set()
    started.wait()
    assert instance.state is State.STOPPED
