"""The engine in this process: overload, failures, shutdown, batches."""

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from services import ANSWER, LOSS, Begin, Make, Start, photo_job, problem_of, results, submit
from waiting import PATIENCE, wait_until

from lensbox.runtime.images.gpu_jpeg import CodedPhoto
from lensbox.serve.engine.instance import Instance
from lensbox.serve.engine.job_queue import Wakes
from lensbox.serve.engine.jobs import CodedJob
from lensbox.serve.errors import NotReadyError, OverloadError
from lensbox.serve.observability.metrics import Metrics
from lensbox.serve.settings import Settings


def test_computes_in_one_thread(make: Make, fake: Any, begin: Begin) -> None:
    instance = make()
    assert not instance.jobs
    futures = [begin(instance), *(submit(instance, LOSS) for _ in range(10))]
    assert instance.jobs
    fake.gate.set()
    found = submit(instance, photo_job(3, 5, 7)).result(PATIENCE)
    assert results(*futures) == [ANSWER] * 11
    assert found.boxes.tolist() == [[1, 2, 3, 4]]
    assert fake.calls == [("loss", (2, 4))] * 11 + [("detect", ((3, 5, 7), None, None))]
    assert len(fake.threads) == 1
    assert threading.get_ident() not in fake.threads
    wait_until(lambda: instance.jobs == 0)


def test_stop_waits_for_queued_jobs(make: Make, fake: Any, begin: Begin) -> None:
    instance = make()
    futures = [begin(instance)]
    futures += [submit(instance, LOSS) for _ in range(3)]
    wait_until(lambda: instance.jobs == 4)
    assert not instance.stop(0.01)  # the device is stuck
    with pytest.raises(NotReadyError, match="shutting down"):
        submit(instance, LOSS).result(PATIENCE)
    assert not any(future.done() for future in futures)
    fake.gate.set()
    assert instance.stop(PATIENCE)
    assert results(*futures) == [ANSWER] * 4


def test_stop_while_loading_ends_after_the_load(fake: Any) -> None:
    loading = threading.Event()

    def load() -> Any:
        assert loading.wait(PATIENCE)
        return fake

    instance = Instance(load, Settings(Path("unused")), Metrics())
    instance.start()
    assert not instance.stop(0.01)
    loading.set()
    assert instance.started.wait(PATIENCE)
    assert instance.missing == ["the service is shutting down"]


def test_fails_queued_and_new_jobs_once_the_self_test_fails(make: Make, fake: Any, begin: Begin) -> None:
    instance = make()
    running = begin(instance)
    waiting: list[Future[Any]] = [submit(instance, LOSS), submit(instance, photo_job())]
    wait_until(lambda: instance.jobs == 3)
    fake.error = RuntimeError("CUDA error: an illegal memory access was encountered")
    fake.self_test_failures = ["boxes differ"]
    fake.gate.set()
    with pytest.raises(RuntimeError, match="illegal memory access"):
        running.result(PATIENCE)
    for future in waiting:
        with pytest.raises(NotReadyError, match=r"self-test fails .*\(boxes differ\); restart the service"):
            future.result(PATIENCE)
    assert (bool(instance.failure), len(fake.calls)) == (True, 1)
    with pytest.raises(NotReadyError, match="restart the service"):
        submit(instance, LOSS).result(PATIENCE)


def test_refuses_a_job_that_would_be_late(make: Make, fake: Any, begin: Begin) -> None:
    instance = make()
    instance.seconds_per_image = 100.0
    assert submit(instance, photo_job(), time.monotonic() + PATIENCE).result(PATIENCE)  # the queue is empty
    running = begin(instance)
    instance.seconds_per_image = 100.0
    waiting = [submit(instance, photo_job()) for _ in range(4)]
    with pytest.raises(OverloadError, match="more than half of the time limit"):
        submit(instance, photo_job(), time.monotonic() + 300).result(PATIENCE)
    waiting.append(submit(instance, photo_job(), time.monotonic() + 3000))
    fake.gate.set()
    results(running, *waiting)


def test_readiness_ends_with_a_stuck_call(
    start: Start, fake: Any, png: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    client = start(answer_timeout=0.1, engine_timeout=0.2).client
    fake.gate.clear()
    assert client.post("/v1/detect", content=png).status_code == 504
    wait_until(lambda: client.get("/readyz").status_code == 503)
    reason = "a call of the model has run for more than 0.2 seconds; restart the service"
    for response in (client.get("/readyz"), client.post("/v1/detect", content=png)):
        assert problem_of(response) == (503, "not_ready", reason)
    assert "lensbox_ready 0.0" in client.get("/metrics").text
    assert [record.message for record in caplog.records].count(reason) == 1
    # From here on a slow machine may miss the short limits: ask again.
    fake.gate.set()
    wait_until(lambda: client.get("/readyz").status_code == 200)
    wait_until(lambda: client.post("/v1/detect", content=png).status_code == 200)
    fake.error = SystemExit(3)  # ends the inference thread
    wait_until(lambda: client.post("/v1/detect", content=png).status_code == 503)
    assert "the inference thread failed (SystemExit" in client.get("/readyz").text


# --- batches: preparation beside the model, answers, bad jobs ---


class _Decoder:
    """Stands in for the GPU's decoder. Refuses files that begin with 0; files that begin with 9 raise.

    batches: files per call, by their first byte. holds: batches that begin with this byte block while `gate`
    is closed; None: all batches.
    """

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.batches: list[list[int]] = []
        self.holds: int | None = None

    def __call__(self, photos: Sequence[CodedPhoto], *_: object) -> list[torch.Tensor]:
        self.batches.append([int(photo.file[0]) for photo in photos])
        firsts = self.batches[-1]
        if self.holds in (None, firsts[0]):
            assert self.gate.wait(PATIENCE)
        if 9 in firsts:
            raise ValueError("a bad file")
        return [torch.zeros(1, 2, 3 if first else 0, dtype=torch.uint8) for first in firsts]


@pytest.fixture
def decoder(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Decoder]:
    decoder = _Decoder()
    monkeypatch.setattr("lensbox.serve.engine.jobs.decoded_pixels", decoder)
    yield decoder
    decoder.gate.set()


def _coded(first: int) -> CodedJob:
    return CodedJob((None, None), np.array([first], np.uint8), 1, 3, 2)


def test_decodes_the_next_batch_while_the_model_computes(
    make: Make, fake: Any, begin: Begin, decoder: _Decoder
) -> None:
    fake.device, fake.largest_batch = torch.device("cuda"), 2
    instance = make()
    running = begin(instance, photo_job())
    futures = [submit(instance, _coded(first)) for first in (1, 2, 0, 3)]
    wait_until(lambda: instance.jobs == 5)
    decoder.gate.clear()
    fake.gate.set()
    running.result(PATIENCE)
    fake.gate.clear()
    wait_until(lambda: bool(decoder.batches))
    assert not instance.stop(0.01)  # stopping waits for a batch that is being decoded
    decoder.gate.set()
    wait_until(lambda: fake.batches == [1, 2])  # the first two files are in the model
    wait_until(lambda: decoder.batches[:2] == [[1, 2], [0, 3]])
    assert not any(future.done() for future in futures)
    fake.gate.set()
    assert [one is None for one in results(*futures)] == [False, False, True, False]
    assert len(fake.threads) == 1


def test_a_gpu_computes_while_the_batch_before_is_answered(make: Make, fake: Any, begin: Begin) -> None:
    """Unlike a CPU, whose launch returns when it has computed."""
    for device, before in (("cuda", 2), ("cpu", 1)):
        fake.device, fake.largest_batch = torch.device(device), 1
        fake.calls.clear()
        instance = make()
        running = begin(instance, photo_job())
        launched: list[int] = []  # calls at the time of each answer
        futures = [submit(instance, photo_job()) for _ in range(4)]
        for future in (running, *futures[:-1]):
            future.add_done_callback(lambda _: launched.append(len(fake.calls)))  # noqa: B023
        wait_until(lambda: instance.jobs == 5)  # noqa: B023
        fake.gate.set()
        results(running, *futures)
        assert launched[0] >= before
        assert instance.stop(PATIENCE)


def test_talks_with_front_ends_while_a_batch_is_decoded(fake: Any, decoder: _Decoder) -> None:
    """Answers of the batch before are sent then, and jobs come."""
    received: list[bool] = []

    class Noted(Wakes):
        def receive(self, timeout: float) -> None:
            received.append(decoder.gate.is_set())
            super().receive(timeout)

    source = Noted()
    instance = Instance(lambda: fake, Settings(Path("unused")), Metrics(), source)
    instance.start()
    wait_until(lambda: not instance.missing)
    decoder.gate.clear()
    future = submit(instance, _coded(2))
    wait_until(lambda: bool(decoder.batches))
    received.clear()
    other = submit(instance, photo_job())
    wait_until(lambda: False in received)
    assert not future.done()
    decoder.gate.set()
    assert [one.scores.tolist() for one in results(future, other)] == [[0.5]] * 2
    assert instance.stop(PATIENCE)


@pytest.mark.parametrize(
    "jobs",
    [
        *([_coded(number) for number in numbers] for numbers in ((1, 9, 3), (1, 9))),
        [photo_job(3, 9, i) for i in (2, 9, 3)],
    ],
)
def test_a_bad_image_does_not_fail_its_batch(
    make: Make, begin: Begin, fake: Any, decoder: _Decoder, jobs: list[Any]
) -> None:
    instance = make()
    fake.bad_shape = (3, 9, 9)
    running = begin(instance)
    good, bad, *others = [submit(instance, job) for job in jobs]
    wait_until(lambda: instance.jobs == len(jobs) + 1)
    fake.gate.set()
    assert running.result(PATIENCE) == ANSWER
    with pytest.raises(ValueError, match="a bad "):
        bad.result(PATIENCE)
    assert [one.scores.tolist() for one in results(good, *others)] == [[0.5]] * (len(jobs) - 1)
    assert decoder.batches in ([[1, 9, 3], [1], [9], [3]], [[1, 9], [1], [9]], [])
    assert not instance.missing


def test_too_few_results_fail_their_jobs_alone(
    make: Make, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = make()
    monkeypatch.setattr(fake, "fetch", lambda _: [])
    with pytest.raises(RuntimeError, match="the detector must return 1 results, got 0"):
        submit(instance, photo_job()).result(PATIENCE)
    monkeypatch.undo()
    assert submit(instance, photo_job()).result(PATIENCE).scores.tolist() == [0.5]


def test_a_decoder_that_hangs_counts_as_stuck(make: Make, decoder: _Decoder) -> None:
    instance = make(answer_timeout=0.1, engine_timeout=0.2)
    decoder.gate.clear()
    future = submit(instance, _coded(1))
    wait_until(lambda: "has run for more than" in instance.stuck)
    decoder.gate.set()
    assert future.result(PATIENCE) is not None
    assert not instance.stuck
