"""Steps of a request in threads. `test_service.py` has deadlines and hang-ups of clients."""

import asyncio
from concurrent.futures import Future
from typing import Any

import pytest

from lensbox.serve.errors import DeadlineError, OverloadError
from lensbox.serve.requests.futures import Deadline, result_for, results_in_turn


class Silent:
    """A request whose client neither sends nor closes."""

    async def receive(self) -> Any:
        await asyncio.Event().wait()

    async def is_disconnected(self) -> bool:
        return False


def _wait(first: "Future[Any]") -> Any:
    request: Any = Silent()
    return asyncio.run(result_for(request, first, Deadline().or_sooner(0.01)))


@pytest.mark.parametrize("is_first", [True, False])
def test_cancels_the_current_step_at_the_deadline(is_first: bool) -> None:
    first: Future[Any] = Future()
    step: Future[Any] = Future()
    first.set_result(step)
    with pytest.raises(DeadlineError, match=r"within 0\.01 seconds"):
        _wait(step if is_first else first)
    assert step.cancelled()


def test_cancels_a_step_that_begins_after_the_deadline() -> None:
    first: Future[Any] = Future()
    second: Future[Any] = Future()
    first.set_running_or_notify_cancel()
    with pytest.raises(DeadlineError):
        _wait(first)
    first.set_result(second)
    assert second.cancelled()


@pytest.mark.parametrize(("refused", "asked"), [({0}, [0]), ({2, 3}, [0, 1, 2, 2, 3, 3])])
def test_a_full_queue_refuses_the_first_job_of_several_only(refused: set[int], asked: list[int]) -> None:
    calls: list[int] = []

    def submit(job: int) -> "Future[int]":
        calls.append(job)
        if job in refused:
            refused.remove(job)
            raise OverloadError("full")
        future: Future[int] = Future()
        future.set_result(job)
        return future

    request: Any = Silent()
    found = results_in_turn(request, [0, 1, 2, 3], submit, Deadline().or_sooner(60))
    if 0 in refused:
        with pytest.raises(OverloadError):
            asyncio.run(found)
        assert calls[0] == 0
        assert len(calls) <= 2
    else:
        assert asyncio.run(found) == [0, 1, 2, 3]
        assert sorted(calls) == asked
