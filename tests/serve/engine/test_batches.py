"""The batches of an engine: preparation beside the model, answers, bad jobs."""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from services import ANSWER, Begin, Make, photo_job, results, submit
from waiting import PATIENCE, wait_until

from lensbox.runtime.images.gpu_jpeg import CodedPhoto
from lensbox.serve.engine.instance import Instance
from lensbox.serve.engine.job_queue import Wakes
from lensbox.serve.engine.jobs import CodedJob
from lensbox.serve.observability.metrics import Metrics
from lensbox.serve.settings import Settings


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


@pytest.mark.parametrize("jobs", [[_coded(1), _coded(9), _coded(3)], [photo_job(3, 9, i) for i in (2, 9, 3)]])
def test_a_bad_image_does_not_fail_its_batch(
    make: Make, begin: Begin, fake: Any, decoder: _Decoder, jobs: list[Any]
) -> None:
    instance = make()
    fake.bad_shape = (3, 9, 9)
    running = begin(instance)
    good, bad, other = [submit(instance, job) for job in jobs]
    wait_until(lambda: instance.jobs == 4)
    fake.gate.set()
    assert running.result(PATIENCE) == ANSWER
    with pytest.raises(ValueError, match="a bad "):
        bad.result(PATIENCE)
    assert [one.scores.tolist() for one in results(good, other)] == [[0.5]] * 2
    assert decoder.batches in ([[1, 9, 3], [1], [9], [3]], [])
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
