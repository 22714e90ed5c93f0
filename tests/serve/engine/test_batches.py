"""The batches of an engine: preparation beside the model, answers, bad jobs."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from services import ANSWER, Begin, Make, photo_job, results
from waiting import PATIENCE, wait_until

from lensbox.runtime.images.gpu_jpeg import CodedPhoto
from lensbox.serve.engine.instance import Instance
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
    fake.largest_batch = 2
    instance = make(queue_size=20)
    running = begin(instance)
    futures = [instance.submit(_coded(first)) for first in (1, 2, 0, 3, 4)]
    other = instance.submit(photo_job(1, 4, 4))
    decoder.gate.clear()
    fake.gate.set()
    assert running.result(PATIENCE) == ANSWER
    fake.gate.clear()
    wait_until(lambda: bool(decoder.batches))
    assert not instance.stop(0.01)  # stopping waits for a batch that is being decoded
    decoder.gate.set()
    wait_until(lambda: fake.batches == [1, 2])  # the first two files are in the model
    wait_until(lambda: decoder.batches == [[1, 2], [0, 3]])
    assert not any(future.done() for future in futures)
    fake.gate.set()
    assert [one is None for one in results(*futures, other)] == [False, False, True, False, False, False]
    assert decoder.batches == [[1, 2], [0, 3], [4]]
    assert fake.batches == [1, 2, 1, 1, 1]
    assert len(fake.threads) == 1


def test_a_gpu_computes_while_the_batch_before_is_answered(
    make: Make, fake: Any, begin: Begin, decoder: _Decoder
) -> None:
    """Unlike a CPU, whose call returns when it has computed."""
    fake.device, fake.largest_batch = torch.device("cuda"), 1
    instance = make(queue_size=20)
    running = begin(instance)
    begun: list[int] = []  # calls at the time of each answer
    futures = [instance.submit(_coded(first)) for first in range(1, 9)]
    for future in futures:
        future.add_done_callback(lambda _: begun.append(len(fake.calls)))
    slow = SimpleNamespace(wait=lambda _: threading.Event().wait(0.02) or True, set=lambda: None)
    gate, fake.gate = fake.gate, slow  # the next file is then decoded when a call ends
    gate.set()
    results(running, *futures)
    assert sorted(begun) == begun
    assert any(count > number for number, count in enumerate(begun, 2)), begun
    assert max(begun) == 9


class _Coming:
    """A source of two files to decode, and of a third one while the second is decoded."""

    def __init__(self) -> None:
        self.instance: Instance
        self.futures: list[Future[Any]] = []
        self._woken = threading.Event()

    def receive(self, timeout: float, busy: bool = True) -> None:
        if not self.futures:
            self.futures += [self.instance.submit(_coded(first)) for first in (1, 2)]
        elif self.futures[0].done() and len(self.futures) == 2:
            self.futures.append(self.instance.submit(_coded(3)))
        self._woken.wait(timeout)
        self._woken.clear()

    def wake(self) -> None:
        self._woken.set()


def test_receives_while_the_next_batch_is_decoded(fake: Any, decoder: _Decoder) -> None:
    """To receive is also to send the answers of the batch before."""
    coming = _Coming()
    fake.largest_batch = 1
    coming.instance = Instance(lambda: fake, Settings(Path("unused")), Metrics(), coming)
    decoder.holds = 2
    decoder.gate.clear()
    coming.instance.start()
    wait_until(lambda: len(coming.futures) == 3)
    assert not coming.futures[1].done()
    decoder.gate.set()
    assert [one.scores.tolist() for one in results(*coming.futures)] == [[0.5]] * 3
    assert coming.instance.stop(PATIENCE)


@pytest.mark.parametrize("jobs", [[_coded(1), _coded(9), _coded(3)], [photo_job(3, 9, i) for i in (2, 9, 3)]])
def test_a_bad_image_does_not_fail_its_batch(
    make: Make, begin: Begin, fake: Any, decoder: _Decoder, jobs: list[Any]
) -> None:
    instance = make(queue_size=20)
    fake.bad_shape = (3, 9, 9)
    running = begin(instance)
    good, bad, other = [instance.submit(job) for job in jobs]
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
    monkeypatch.setattr(fake, "detect_arrays", lambda *_: [])
    with pytest.raises(RuntimeError, match="the detector must return 1 results, got 0"):
        instance.submit(photo_job()).result(PATIENCE)
    monkeypatch.undo()
    assert instance.submit(photo_job()).result(PATIENCE).scores.tolist() == [0.5]
