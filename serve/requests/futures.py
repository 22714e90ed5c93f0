"""Wait for worker threads without blocking the event loop, until a deadline or a hang-up of the client."""

import asyncio
import contextlib
import contextvars
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import Request

from lensbox.serve.errors import ApiError, DeadlineError, HangUpError, shown

DEADLINE_HEADER = "X-Request-Timeout-Ms"
_MOST_MILLISECONDS = 86_400_000  # a day
_UNWATCHED = 0.05  # seconds before a hang-up is looked for: most results come sooner, and a task takes time

Result = TypeVar("Result")
First = TypeVar("First")
Second = TypeVar("Second")


@dataclass(frozen=True)
class Deadline:
    """The deadline of an answer.

    at: seconds on the clock of `time.monotonic`. seconds: the whole time limit, for messages.
    """

    at: float
    seconds: float

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """Return the deadline that is `seconds` from now."""
        return cls(time.monotonic() + seconds, seconds)

    @property
    def left(self) -> float:
        """The remaining seconds, at least 0."""
        return max(0.0, self.at - time.monotonic())

    def error(self) -> DeadlineError:
        """Return the error of a request that missed this deadline."""
        return DeadlineError(f"no answer within {self.seconds:g} seconds; try again later")

    def or_sooner(self, seconds: float) -> "Deadline":
        """Return this deadline, or the one `seconds` from now if that comes first."""
        other = Deadline.after(seconds)
        return other if other.at < self.at else self


NO_DEADLINE = Deadline(math.inf, math.inf)


def deadline_of(text: str | None) -> Deadline:
    """Return the deadline in the header X-Request-Timeout-Ms; NO_DEADLINE for None.

    Raises ApiError (422) unless it is a whole number of milliseconds from 1 to a day.
    """
    if text is None:
        return NO_DEADLINE
    milliseconds = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
    if not 1 <= milliseconds <= _MOST_MILLISECONDS:
        rule = f"must be a whole number of milliseconds from 1 to {_MOST_MILLISECONDS}"
        raise ApiError(422, "invalid_parameter", f"{DEADLINE_HEADER} {rule}, got {shown(text)}")
    return Deadline.after(milliseconds / 1000)


async def result_for(request: Request, future: "Future[Result]", deadline: Deadline) -> Result:
    """Return the future's result, for a request whose body has been read.

    Cancel the future if the client hangs up or the deadline passes, so that a queued job never runs. Raises
    HangUpError, DeadlineError, or the future's exception.
    """
    loop, thread = asyncio.get_running_loop(), threading.get_ident()
    woken: asyncio.Future[None] = loop.create_future()
    hang_up: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle

    def wake() -> None:
        if not woken.done():
            woken.set_result(None)

    def on_done(_: object) -> None:
        if threading.get_ident() == thread:
            wake()
        else:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(wake)

    def watch_client() -> None:
        nonlocal hang_up, timer
        hang_up = loop.create_task(_hang_up(request))
        hang_up.add_done_callback(lambda _: wake())
        timer = loop.call_later(deadline.left, wake)

    future.add_done_callback(on_done)
    timer = loop.call_later(min(_UNWATCHED, deadline.left), watch_client)
    try:
        await woken  # asyncio.wait would take two more iterations of the loop
        if not future.done():
            raise HangUpError if hang_up is not None and hang_up.done() else deadline.error()
        if future.cancelled():  # because the service shuts down
            raise asyncio.CancelledError
        return future.result()
    finally:
        timer.cancel()
        if hang_up is not None:
            hang_up.cancel()
        future.cancel()  # does nothing once the future runs


def chained(
    first: "Future[First]", follow: Callable[[First], "Future[Second]"]
) -> "Future[tuple[First, Second]]":
    """Chain two futures, so that the event loop awaits only the second. Return both results.

    `follow` starts the second step in the thread that ends the first, in the caller's context. The returned
    future raises the exception of a step or of `follow`. Cancelling the returned future cancels both steps.
    """
    context = contextvars.copy_context()
    both: Future[tuple[First, Second]] = Future()
    steps: list[Future[First] | Future[Second]] = [first]

    def go_on(done: "Future[First]") -> None:
        if both.cancelled():
            return
        try:
            value = done.result()
            second = context.run(follow, value)
        except BaseException as error:  # every exception, because a request waits for the outcome
            _fail(both, error)
            return
        steps.append(second)
        second.add_done_callback(lambda done: finish(value, done))
        if both.cancelled():  # meanwhile
            second.cancel()

    def finish(value: First, done: "Future[Second]") -> None:
        try:
            both.set_result((value, done.result()))
        except InvalidStateError:  # cancelled
            pass
        except BaseException as error:
            _fail(both, error)

    def end(done: "Future[tuple[First, Second]]") -> None:
        if done.cancelled():
            for step in steps:
                step.cancel()
        # Break the reference cycle: otherwise photographs stay in memory until the garbage collector runs.
        steps.clear()

    both.add_done_callback(end)
    first.add_done_callback(go_on)
    return both


def _fail(future: "Future[Any]", error: BaseException) -> None:
    with contextlib.suppress(InvalidStateError):  # cancelled
        future.set_exception(error)


async def _hang_up(request: Request) -> None:
    """Return when the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
