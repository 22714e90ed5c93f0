"""The engine in this process: overload, failures, shutdown."""

import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from services import ANSWER, LOSS, Begin, Make, Start, photo_job, problem_of, results, submit
from waiting import PATIENCE, wait_until

from lensbox.serve.engine.instance import Instance
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
    instance.batches.seconds_per_image = 100.0
    assert submit(instance, photo_job(), time.monotonic() + PATIENCE).result(PATIENCE)  # the queue is empty
    running = begin(instance)
    instance.batches.seconds_per_image = 100.0
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
