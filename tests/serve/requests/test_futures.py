"""Steps of a request in threads: results, errors, deadlines."""

import asyncio
from concurrent.futures import Future
from typing import Any

import pytest

from lensbox.serve.errors import DeadlineError
from lensbox.serve.requests.futures import Deadline, result_for


class Silent:
    """A request whose client neither sends nor closes."""

    async def receive(self) -> Any:
        await asyncio.Event().wait()


def _wait(first: "Future[Any]", deadline: Deadline | None = None) -> Any:
    request: Any = Silent()
    return asyncio.run(result_for(request, first, deadline or Deadline()))


def _done(result: Any) -> "Future[Any]":
    future: Future[Any] = Future()
    future.set_result(result)
    return future


def _failed() -> "Future[Any]":
    future: Future[Any] = Future()
    future.set_exception(KeyError("full"))
    return future


def test_follows_steps_to_the_last() -> None:
    assert _wait(_done("found")) == "found"
    assert _wait(_done(_done("found"))) == "found"
    for steps in (_failed(), _done(_failed())):
        with pytest.raises(KeyError, match="full"):
            _wait(steps)


@pytest.mark.parametrize("is_first", [True, False])
def test_cancels_the_current_step_at_the_deadline(is_first: bool) -> None:
    step: Future[Any] = Future()
    with pytest.raises(DeadlineError, match=r"within 0\.01 seconds"):
        _wait(step if is_first else _done(step), Deadline().or_sooner(0.01))
    assert step.cancelled()


def test_cancels_a_step_that_begins_after_the_deadline() -> None:
    first: Future[Any] = Future()
    second: Future[Any] = Future()
    first.set_running_or_notify_cancel()
    with pytest.raises(DeadlineError):
        _wait(first, Deadline().or_sooner(0.01))
    first.set_result(second)
    assert second.cancelled()
