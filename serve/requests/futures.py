"""Wait for worker threads without blocking the event loop, until a deadline or a hang-up of the client."""

import asyncio
import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

from fastapi import Request
from starlette.datastructures import Headers

from lensbox.serve.errors import ApiError, DeadlineError, OverloadError, shown

Job = TypeVar("Job")

DEADLINE = "lensbox.deadline"  # key of the ASGI scope
_HEADER = "X-Request-Timeout-Ms"
_MOST_MILLISECONDS = 86_400_000  # a day
_IN_FLIGHT = 2  # jobs of a request
_PAUSE = 0.02  # seconds before a full queue is asked again


class Deadline(NamedTuple):
    """The deadline of an answer; by default none.

    at: seconds on the clock of `time.monotonic`. seconds: the whole time limit, for messages.
    """

    at: float = math.inf
    seconds: float = math.inf

    @property
    def left(self) -> float:
        """The remaining seconds, at least 0."""
        return max(0.0, self.at - time.monotonic())

    def error(self) -> DeadlineError:
        """Return the error of a request that missed this deadline."""
        return DeadlineError(f"no answer within {self.seconds:g} seconds; try again later")

    def or_sooner(self, seconds: float) -> "Deadline":
        """Return this deadline, or the one `seconds` from now if that comes first."""
        at = time.monotonic() + seconds
        return Deadline(at, seconds) if at < self.at else self


def deadline_of(headers: Headers) -> Deadline:
    """Return the deadline in the header X-Request-Timeout-Ms.

    Raises ApiError (422) unless it is a whole number of milliseconds from 1 to a day.
    """
    text = headers.get(_HEADER)
    if text is None:
        return Deadline()
    milliseconds = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
    if not 1 <= milliseconds <= _MOST_MILLISECONDS:
        rule = f"must be a whole number of milliseconds from 1 to {_MOST_MILLISECONDS}"
        raise ApiError(422, "invalid_parameter", f"{_HEADER} {rule}, got {shown(text)}")
    return Deadline().or_sooner(milliseconds / 1000)


async def result_for(request: Request, future: "Future[Any]", deadline: Deadline) -> Any:
    """Return the future's result, for a request whose body has been read.

    If the result is itself a future, follow it: the thread that ends a step starts the next, and wakes the
    event loop only at the end. Cancel the current step if the client hangs up or the deadline passes, so that
    a queued job never runs. Raises HangUpError, DeadlineError, or the exception of a step.
    """
    loop, thread = asyncio.get_running_loop(), threading.get_ident()
    woken: asyncio.Future[None] = loop.create_future()
    step, is_over = future, False

    def wake() -> None:
        if not woken.done():
            woken.set_result(None)

    def on_done(done: "Future[Any]") -> None:
        nonlocal step
        if not done.cancelled() and done.exception() is None and isinstance(done.result(), Future):
            step = done.result()
            if is_over:
                step.cancel()
            step.add_done_callback(on_done)
        elif threading.get_ident() == thread:
            wake()
        else:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(wake)

    future.add_done_callback(on_done)
    timer = loop.call_later(deadline.left, wake)
    try:
        await woken  # asyncio.wait would take two more iterations of the loop
        if not step.done():
            raise deadline.error()
        if step.cancelled():  # because the service shuts down
            raise asyncio.CancelledError
        return step.result()
    finally:
        is_over = True
        timer.cancel()
        step.cancel()  # does nothing once the step runs


async def results_in_turn(
    request: Request, jobs: Sequence[Job], submit: "Callable[[Job], Future[Any]]", deadline: Deadline
) -> list[Any]:
    """Return the results of the jobs of one request, of which two are in flight at a time.

    So the jobs of other requests come in between, and the engine need not wait for the next one. After the
    first result, a full queue is asked again until the deadline, because the work so far would be lost.
    Raises what `submit` and `result_for` raise; no further job is then submitted.
    """
    results: list[Any] = []

    async def result(job: Job) -> Any:
        while True:
            try:
                return await result_for(request, submit(job), deadline)
            except OverloadError:
                if not results or not deadline.left:
                    raise
            await asyncio.sleep(_PAUSE)

    if len(jobs) == 1:
        return [await result(jobs[0])]  # without a task, which takes time
    flying: deque[asyncio.Task[Any]] = deque()
    try:
        for job in jobs:
            if len(flying) == _IN_FLIGHT:
                results.append(await flying.popleft())
            flying.append(asyncio.create_task(result(job)))
        while flying:
            results.append(await flying.popleft())
    finally:
        for task in flying:
            task.cancel()
    return results
