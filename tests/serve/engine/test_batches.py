"""The batches of an engine: which jobs share one, preparation, parts of large jobs, bad jobs."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from services import ANSWER, LOSS, Begin, Make, large_job, photo_job, results
from waiting import PATIENCE, wait_until

from lensbox.runtime.images.gpu_jpeg import CodedPhoto
from lensbox.runtime.images.photo import Photo
from lensbox.serve.engine.instance import Instance
from lensbox.serve.engine.jobs import CanvasJob, CodedJob, DetectJob
from lensbox.serve.errors import NotReadyError
from lensbox.serve.settings import Settings


def test_only_jobs_of_one_kind_and_thresholds_share_a_batch(make: Make, fake: Any, begin: Begin) -> None:
    instance = make(queue_size=20)
    running = begin(instance)
    photo = Photo.of(torch.zeros(1, 2, 3, dtype=torch.uint8))
    jobs: list[Any] = [DetectJob(photo, threshold, None) for threshold in (0.5, None, 0.5)]
    jobs += [CanvasJob(torch.zeros(2, 1, 4, 4, dtype=torch.uint8)), DetectJob(photo, None, None)]
    futures = [instance.submit(job) for job in jobs]
    fake.gate.set()
    results(running, *futures)
    # The oldest queued job decides the group of the next batch.
    assert [(name, rest[1:]) for name, rest in fake.calls[1:]] == [
        *[("detect", (0.5, None))] * 2,
        *[("detect", (None, None))] * 2,
        ("canvases", (None, None)),
    ]
    assert fake.batches == [1, 2, 2, 1]


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
    return CodedJob(np.array([first], np.uint8), 1, 3, 2, None, None)


def test_decodes_the_next_batch_while_the_model_computes(
    make: Make, fake: Any, begin: Begin, decoder: _Decoder
) -> None:
    instance = make(queue_size=20, max_batch=2)
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
    fake.device = torch.device("cuda")
    instance = make(queue_size=20, max_batch=1)
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
    settings = Settings(Path("unused"), max_batch=1)
    coming.instance = Instance(lambda: fake, settings, lambda _: None, source=coming)
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


def test_canvases_are_cut_into_batches_and_joined(make: Make, fake: Any, begin: Begin) -> None:
    instance = make(queue_size=20, max_batch=4)
    running = begin(instance)
    canvases = torch.arange(14, dtype=torch.uint8).reshape(14, 1, 1, 1).expand(14, 1, 2, 2)
    futures = [instance.submit(CanvasJob(part)) for part in canvases.split([1, 2, 9, 1, 1])]
    fake.gate.set()
    running.result(PATIENCE)
    found = results(*futures)
    assert [len(part["boxes"]) for part in found] == [1, 2, 9, 1, 1]
    assert np.concatenate([part["boxes"] for part in found])[:, 0, 0].tolist() == list(range(14))
    assert all(part["counts"].tolist() == [1] * len(part["boxes"]) for part in found)
    # The job of 9 has parts of 4, 4 and 1; the last one shares a batch with the jobs of 1 and 2.
    assert [shape[0] for _, (shape, *_) in fake.calls[1:]] == [4, 2, 4, 4]


def test_small_jobs_run_between_the_parts_of_large_jobs(make: Make, fake: Any, begin: Begin) -> None:
    instance = make(queue_size=20, max_batch=2)
    first = begin(instance, large_job())
    second = instance.submit(large_job(7))
    small: list[Future[Any]] = [instance.submit(LOSS), *(instance.submit(photo_job()) for _ in range(3))]
    fake.gate.set()
    results(first, second, *small)
    assert first.result()["boxes"][:, 0, 0].tolist() == [0] * 10
    assert second.result()["boxes"][:, 0, 0].tolist() == [7] * 10
    turns = ["canvases", "loss", "canvases", "detect", "detect", "canvases", "detect", *["canvases"] * 7]
    assert [name for name, _ in fake.calls] == turns


def test_a_large_job_fails_with_its_part_and_with_the_model(make: Make, fake: Any, begin: Begin) -> None:
    instance = make(max_batch=2, queue_size=9)
    large = begin(instance, large_job())
    fake.error = ValueError("a bad canvas")
    fake.gate.set()
    with pytest.raises(ValueError, match="a bad canvas"):
        large.result(PATIENCE)
    fake.error = None
    assert len(fake.calls) == 1
    large = begin(instance, large_job())
    fake.bad_shape = (3, 9, 9)
    fake.self_test_error = RuntimeError("CUDA error: an illegal memory access was encountered")
    other = instance.submit(photo_job(3, 9, 9))  # runs after the first part
    fake.gate.set()
    with pytest.raises(ValueError, match="a bad image"):
        other.result(PATIENCE)
    with pytest.raises(NotReadyError, match="self-test fails after an error"):
        large.result(PATIENCE)
    assert len(fake.calls) == 3


def test_too_few_results_fail_their_jobs_alone(
    make: Make, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = make()
    monkeypatch.setattr(fake, "detect_arrays", lambda *_: [])
    with pytest.raises(RuntimeError, match="the detector must return 1 results, got 0"):
        instance.submit(photo_job()).result(PATIENCE)
    monkeypatch.undo()
    assert instance.submit(photo_job()).result(PATIENCE).scores.tolist() == [0.5]
