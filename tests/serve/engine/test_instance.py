"""The engine in this process: batching, overload, failures, shutdown."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import pytest
import torch
from problems import problem_of
from services import Start
from waiting import PATIENCE, wait_until

from lensbox.runtime.box_loss import BoxPairs, Losses
from lensbox.runtime.images.gpu_jpeg import CodedPhoto
from lensbox.runtime.images.photo import Photo
from lensbox.serve.engine.errors import DeadlineError, NotReadyError, OverloadError
from lensbox.serve.engine.instance import Instance, State
from lensbox.serve.engine.jobs import CanvasJob, CodedJob, DetectJob, LossJob
from lensbox.serve.settings import Settings

_LOSS = LossJob(BoxPairs(torch.zeros(2, 4), torch.zeros(2, 4)), False, False, 100)
_ANSWER = Losses(0.25, None, None)


Make = Callable[..., Instance]
Begin = Callable[..., "Future[Any]"]


@pytest.fixture
def make(fake: Any) -> Iterator[Make]:
    """Make a ready instance over the fake artifact. Stop all instances at the end."""
    made: list[Instance] = []

    def make(**settings: Any) -> Instance:
        instance = Instance(lambda: fake, Settings(Path("unused"), **settings), lambda _: None)
        instance.start()
        wait_until(lambda: instance.state is State.READY)
        made.append(instance)
        return instance

    yield make
    fake.gate.set()
    for instance in made:
        assert instance.stop(PATIENCE)


@pytest.fixture
def begin(fake: Any) -> Begin:
    """Submit a job, and return its future once the job is running behind the closed gate."""

    def begin(instance: Instance, job: Any = _LOSS) -> "Future[Any]":
        fake.gate.clear()
        count = len(fake.calls)
        future: Future[Any] = instance.submit(job)
        wait_until(lambda: len(fake.calls) > count)
        return future

    return begin


def _results(*futures: "Future[Any]") -> list[Any]:
    return [future.result(PATIENCE) for future in futures]


def test_computes_in_one_thread(make: Make, fake: Any) -> None:
    instance = make(queue_size=20)
    futures = [instance.submit(_LOSS) for _ in range(10)]
    image = torch.zeros(3, 5, 7, dtype=torch.uint8)
    found = instance.submit(DetectJob(Photo.of(image), 0.25, None)).result(PATIENCE)
    assert _results(*futures) == [_ANSWER] * 10
    assert found.boxes.tolist() == [[1, 2, 3, 4]]
    assert fake.calls == [("loss", (2, 4))] * 10 + [("detect", ((3, 5, 7), 0.25, None))]
    assert len(fake.threads) == 1
    assert threading.get_ident() not in fake.threads


def test_stop_finishes_queued_jobs(make: Make, fake: Any, begin: Begin) -> None:
    instance = make()
    futures = [begin(instance)]
    futures += [instance.submit(_LOSS) for _ in range(3)]
    stopped: list[bool] = []
    stopper = threading.Thread(target=lambda: stopped.append(instance.stop(PATIENCE)))
    stopper.start()
    wait_until(lambda: instance.state is State.STOPPED)
    with pytest.raises(NotReadyError, match="shutting down"):
        instance.submit(_LOSS)
    assert not any(future.done() for future in futures)
    fake.gate.set()
    stopper.join(PATIENCE)
    assert stopped == [True]
    assert wait(futures, 0).not_done == set()
    assert [future.result() for future in futures] == [_ANSWER] * 4


def test_stop_gives_up_on_a_stuck_device(make: Make, fake: Any, begin: Begin) -> None:
    instance = make()
    running = begin(instance)
    for _ in range(2):
        assert not instance.stop(0.01)
    fake.gate.set()
    assert running.result(PATIENCE) == _ANSWER


def test_stop_while_loading_ends_after_the_load(fake: Any) -> None:
    loading, started = threading.Event(), threading.Event()

    def load() -> Any:
        assert loading.wait(PATIENCE)
        return fake

    instance = Instance(load, Settings(Path("unused")), lambda _: started.set())
    instance.start()
    assert not instance.stop(0.01)
    loading.set()
    assert started.wait(PATIENCE)
    assert instance.state is State.STOPPED


def _photo(*shape: int) -> DetectJob:
    return DetectJob(Photo.of(torch.zeros(shape or (1, 2, 3), dtype=torch.uint8)), None, None)


def test_only_jobs_of_one_kind_and_thresholds_share_a_batch(make: Make, fake: Any, begin: Begin) -> None:
    instance = make(queue_size=20)
    running = begin(instance)
    photo = Photo.of(torch.zeros(1, 2, 3, dtype=torch.uint8))
    jobs: list[Any] = [DetectJob(photo, threshold, None) for threshold in (0.5, None, 0.5)]
    jobs += [CanvasJob(torch.zeros(2, 1, 4, 4, dtype=torch.uint8)), DetectJob(photo, None, None)]
    futures = [instance.submit(job) for job in jobs]
    fake.gate.set()
    _results(running, *futures)
    # The oldest queued job decides the group of the next batch.
    assert [(name, rest[1:]) for name, rest in fake.calls[1:]] == [
        *[("detect", (0.5, None))] * 2,
        *[("detect", (None, None))] * 2,
        ("canvases", (None, None)),
    ]
    assert fake.batches == [1, 2, 2, 1]


def test_a_bad_image_does_not_fail_its_batch(make: Make, fake: Any, begin: Begin) -> None:
    instance = make(queue_size=20)
    fake.bad_shape = (3, 9, 9)
    running = begin(instance)
    good, bad, other = (instance.submit(_photo(*shape)) for shape in ((1, 2, 2), (3, 9, 9), (1, 3, 3)))
    fake.gate.set()
    assert running.result(PATIENCE) == _ANSWER
    with pytest.raises(ValueError, match="a bad image"):
        bad.result(PATIENCE)
    assert good.result(PATIENCE).scores.tolist() == other.result(PATIENCE).scores.tolist() == [0.5]
    assert instance.state is State.READY


class _Decoder:
    """Stands in for the GPU's decoder. Refuses files that begin with 0.

    batches: files per call, by their first byte. holds: batches that begin with this byte block while `gate`
    is closed; None: all batches. bad: a first byte that makes its batch fail.
    """

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.batches: list[list[int]] = []
        self.holds: int | None = None
        self.bad = -1

    def __call__(self, photos: Sequence[CodedPhoto], *_: object) -> list[Photo | None]:
        self.batches.append([int(photo.file[0]) for photo in photos])
        firsts = self.batches[-1]
        if self.holds in (None, firsts[0]):
            assert self.gate.wait(PATIENCE)
        if self.bad in firsts:
            raise ValueError("a bad file")
        pixels = torch.zeros(1, 2, 3, dtype=torch.uint8)
        return [Photo.of(pixels) if first else None for first in firsts]


@pytest.fixture
def decoder(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Decoder]:
    decoder = _Decoder()
    monkeypatch.setattr("lensbox.serve.engine.jobs.decode_on_gpu", decoder)
    yield decoder
    decoder.gate.set()


def _coded(first: int) -> CodedJob:
    return CodedJob(CodedPhoto("", torch.tensor([first], dtype=torch.uint8), 1, 3, 2), None, None)


def test_decodes_the_next_batch_while_the_model_computes(
    make: Make, fake: Any, begin: Begin, decoder: _Decoder
) -> None:
    instance = make(queue_size=20, max_batch=2)
    running = begin(instance)
    futures = [instance.submit(_coded(first)) for first in (1, 2, 0, 3, 4)]
    other = instance.submit(_photo(1, 4, 4))
    decoder.gate.clear()
    fake.gate.set()
    assert running.result(PATIENCE) == _ANSWER
    fake.gate.clear()
    decoder.gate.set()
    wait_until(lambda: fake.batches == [1, 2])  # the first two files are in the model
    wait_until(lambda: decoder.batches == [[1, 2], [0, 3]])
    assert not any(future.done() for future in futures)
    fake.gate.set()
    found = _results(*futures, other)
    assert [None if one is None else one.scores.tolist() for one in found] == [
        [0.5],
        [0.5],
        None,
        *[[0.5]] * 3,
    ]
    assert decoder.batches == [[1, 2], [0, 3], [4]]
    assert fake.batches == [1, 2, 1, 1, 1]
    assert len(fake.threads) == 1


def test_receives_while_the_next_batch_is_decoded(fake: Any, decoder: _Decoder) -> None:
    """To receive is also to send the answers of the batch before."""
    futures: list[Future[Any]] = []
    first_was_done: list[bool] = []

    def receive(timeout: float) -> None:
        if not futures:
            futures.extend(instance.submit(_coded(first)) for first in (1, 2))
        first_was_done.append(futures[0].done())
        time.sleep(min(timeout, 0.01))

    instance = Instance(lambda: fake, Settings(Path("unused"), max_batch=1), lambda _: None, receive=receive)
    decoder.holds = 2
    decoder.gate.clear()
    instance.start()
    wait_until(lambda: True in first_was_done)
    assert not futures[1].done()
    decoder.gate.set()
    assert [one.scores.tolist() for one in _results(*futures)] == [[0.5]] * 2
    assert instance.stop(PATIENCE)


def test_a_file_that_cannot_be_decoded_fails_alone(
    make: Make, begin: Begin, fake: Any, decoder: _Decoder
) -> None:
    instance = make(queue_size=20)
    decoder.bad = 2
    running = begin(instance)
    good, bad, other = [instance.submit(_coded(first)) for first in (1, 2, 3)]
    fake.gate.set()
    assert running.result(PATIENCE) == _ANSWER
    with pytest.raises(ValueError, match="a bad file"):
        bad.result(PATIENCE)
    assert [one.scores.tolist() for one in _results(good, other)] == [[0.5]] * 2
    assert decoder.batches == [[1, 2, 3], [1], [2], [3]]
    assert instance.state is State.READY


def test_stop_finishes_a_batch_that_is_being_decoded(
    make: Make, fake: Any, begin: Begin, decoder: _Decoder
) -> None:
    instance = make()
    decoder.gate.clear()
    future: Future[Any] = instance.submit(_coded(1))
    wait_until(lambda: decoder.batches == [[1]])
    assert not instance.stop(0.01)
    decoder.gate.set()
    assert instance.stop(PATIENCE)
    assert future.result(0).scores.tolist() == [0.5]


@pytest.mark.parametrize("failures", [["boxes differ"], None])
def test_fails_queued_and_new_jobs_once_the_self_test_fails(
    make: Make, fake: Any, begin: Begin, failures: list[str] | None
) -> None:
    instance = make(queue_size=20)
    running = begin(instance)
    waiting: list[Future[Any]] = [instance.submit(_LOSS), instance.submit(_photo())]
    fake.error = RuntimeError("CUDA error: an illegal memory access was encountered")
    fake.self_test_failures, fake.self_test_error = failures or [], None if failures else fake.error
    fake.gate.set()
    with pytest.raises(RuntimeError, match="illegal memory access"):
        running.result(PATIENCE)
    reason = "boxes differ" if failures else "RuntimeError"
    for future in waiting:
        with pytest.raises(NotReadyError, match=rf"self-test fails .*\({reason}\); restart the service"):
            future.result(PATIENCE)
    assert (instance.state, len(fake.calls)) == (State.FAILED, 1)
    with pytest.raises(NotReadyError, match="restart the service"):
        instance.submit(_LOSS)


def test_cancelled_and_late_jobs_make_room(make: Make, fake: Any, begin: Begin) -> None:
    instance = make(queue_size=2)
    running = begin(instance)
    cancelled, late = instance.submit(_photo()), instance.submit(_photo(), deadline=0.0)
    cancelled.cancel()
    last = instance.submit(_photo())
    with pytest.raises(DeadlineError):
        late.result(0)
    fake.gate.set()
    _results(last, running)


def test_the_queue_is_bounded_by_bytes(make: Make, fake: Any, begin: Begin) -> None:
    instance = make(queue_size=20, queue_bytes=100)
    running = begin(instance)
    large = instance.submit(_photo(1, 10, 11))  # a larger job fits into an empty queue
    with pytest.raises(OverloadError, match="110 bytes of images already wait"):
        instance.submit(_photo(1, 1, 1))
    fake.gate.set()
    _results(large, running)
    fake.gate.clear()
    running = begin(instance)
    fitting = [instance.submit(_photo(1, 5, 10)) for _ in range(2)]
    with pytest.raises(OverloadError, match="100 bytes of images already wait"):
        instance.check_room()
    fake.gate.set()
    _results(running, *fitting)


def test_canvases_are_cut_into_batches_and_joined(make: Make, fake: Any, begin: Begin) -> None:
    instance = make(queue_size=20, max_batch=4)
    running = begin(instance)
    canvases = torch.arange(14, dtype=torch.uint8).reshape(14, 1, 1, 1).expand(14, 1, 2, 2)
    futures = [instance.submit(CanvasJob(part)) for part in canvases.split([1, 2, 9, 1, 1])]
    fake.gate.set()
    running.result(PATIENCE)
    found = _results(*futures)
    assert [len(part.boxes) for part in found] == [1, 2, 9, 1, 1]
    assert torch.cat([part.boxes for part in found])[:, 0, 0].tolist() == list(range(14))
    assert all(part.counts.tolist() == [1] * len(part.boxes) and part.labels is None for part in found)
    assert found[2].counts.dtype == torch.int64
    # Jobs of 1, 2 and 1 images share a batch. The job of 9 runs in three parts; a small job runs between.
    assert [shape[0] for _, (shape, *_) in fake.calls[1:]] == [4, 4, 1, 4, 1]


def _large(value: int = 0) -> CanvasJob:
    """Return a job that takes five calls of an instance with `max_batch=2`."""
    return CanvasJob(torch.full([10, 1, 2, 2], value, dtype=torch.uint8))


def test_small_jobs_run_between_the_parts_of_large_jobs(make: Make, fake: Any, begin: Begin) -> None:
    instance = make(queue_size=20, max_batch=2)
    first = begin(instance, _large())
    second = instance.submit(_large(7))
    small: list[Future[Any]] = [instance.submit(_LOSS), *(instance.submit(_photo()) for _ in range(3))]
    fake.gate.set()
    _results(first, second, *small)
    assert first.result().boxes[:, 0, 0].tolist() == [0] * 10
    assert second.result().boxes[:, 0, 0].tolist() == [7] * 10
    turns = ["canvases", "loss", "canvases", "detect", "detect", "canvases", "detect", *["canvases"] * 7]
    assert [name for name, _ in fake.calls] == turns


def test_a_bad_part_fails_its_job_alone(make: Make, fake: Any, begin: Begin) -> None:
    instance = make(max_batch=2, queue_size=9)
    large = begin(instance, _large())
    fake.error = ValueError("a bad canvas")
    fake.gate.set()
    with pytest.raises(ValueError, match="a bad canvas"):
        large.result(PATIENCE)
    fake.error = None
    assert instance.submit(_LOSS).result(PATIENCE) == _ANSWER
    assert [name for name, _ in fake.calls] == ["canvases", "loss"]
    assert len(instance.submit(_large()).result(PATIENCE).boxes) == 10


def test_answers_a_large_job_when_the_model_fails(make: Make, fake: Any, begin: Begin) -> None:
    instance = make(max_batch=2, queue_size=9)
    large = begin(instance, _large())
    fake.bad_shape = (3, 9, 9)
    fake.self_test_error = RuntimeError("CUDA error: an illegal memory access was encountered")
    other = instance.submit(_photo(3, 9, 9))  # runs after the first part
    fake.gate.set()
    with pytest.raises(ValueError, match="a bad image"):
        other.result(PATIENCE)
    with pytest.raises(NotReadyError, match="self-test fails after an error"):
        large.result(PATIENCE)
    assert len(fake.calls) == 2


def test_refuses_a_job_that_would_be_late(make: Make, fake: Any, begin: Begin) -> None:
    instance = make(queue_size=20, max_batch=1)
    instance.seconds_per_image = 100.0
    assert instance.submit(_photo(), time.monotonic() + PATIENCE).result(PATIENCE)  # the queue is empty
    running = begin(instance)
    instance.seconds_per_image = 100.0
    waiting = [instance.submit(_photo()) for _ in range(4)]
    for refused in (instance.check_room, lambda deadline: instance.submit(_photo(), deadline)):
        with pytest.raises(OverloadError, match="more than half of the time limit"):
            refused(time.monotonic() + 300)
    waiting.append(instance.submit(_photo(), time.monotonic() + 3000))
    fake.gate.set()
    _results(running, *waiting)


def test_admits_a_small_job_that_does_not_wait_for_all_of_a_large_one(
    make: Make, fake: Any, begin: Begin
) -> None:
    instance = make(queue_size=20, max_batch=2)
    large = begin(instance, _large())
    instance.seconds_per_image = 100.0
    # A small job waits for the running part and at most one more part; a large job for ten images.
    in_time = time.monotonic() + 1200
    instance.check_room(in_time)
    small = instance.submit(_photo(), in_time)
    with pytest.raises(OverloadError, match="more than half of the time limit"):
        instance.submit(_large(), in_time)
    fake.gate.set()
    _results(large, small)


def test_too_few_results_fail_their_jobs_alone(
    make: Make, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = make()
    monkeypatch.setattr(fake, "detect_images", lambda *_: [])
    with pytest.raises(RuntimeError, match="the detector must return 1 results, got 0"):
        instance.submit(_photo()).result(PATIENCE)
    monkeypatch.undo()
    assert instance.submit(_photo()).result(PATIENCE).scores.tolist() == [0.5]


def test_health_checks_fail_when_the_inference_thread_fails(start: Start, fake: Any, png: bytes) -> None:
    running = start()
    fake.error = SystemExit(3)
    large = running.service.engine.submit(CanvasJob(torch.zeros([100, 1, 2, 2], dtype=torch.uint8)))
    with pytest.raises(NotReadyError, match="the inference thread failed"):
        large.result(PATIENCE)
    assert running.client.post("/v1/detect", content=png).status_code == 503
    for path in ("/healthz", "/readyz"):
        response = running.client.get(path)
        assert response.status_code == 503
        assert "the inference thread failed (SystemExit" in response.text


@pytest.mark.parametrize("timeout", [0.2, 0.0])
def test_readiness_ends_with_a_stuck_call(
    start: Start, fake: Any, png: bytes, caplog: pytest.LogCaptureFixture, timeout: float
) -> None:
    client = start(answer_timeout=0.1, engine_timeout=timeout).client
    fake.gate.clear()
    assert client.post("/v1/detect", content=png).status_code == 504
    if timeout:
        wait_until(lambda: client.get("/readyz").status_code == 503)
        reason = "a call of the model has run for more than 0.2 seconds; restart the service"
        for response in (client.get("/readyz"), client.post("/v1/detect", content=png)):
            assert response.status_code == 503
            assert problem_of(response) == {"code": "not_ready", "message": reason}
        assert client.get("/healthz").status_code == 503
        assert "lensbox_ready 0.0" in client.get("/metrics").text
        assert [record.message for record in caplog.records].count(reason) == 1
    else:  # no limit
        assert client.get("/readyz").status_code == 200
    fake.gate.set()
    wait_until(lambda: client.get("/readyz").status_code == 200)
    assert client.get("/healthz").status_code == 200
    assert client.post("/v1/detect", content=png).status_code == 200
