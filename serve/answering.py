"""Waits for a worker thread without blocking the event loop, and gives up when the client does."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from fastapi import Request

from lensbox.serve.deadline import Deadline
from lensbox.serve.errors import HangUpError

Result = TypeVar("Result")


async def result_for(request: Request, future: "Future[Result]", deadline: Deadline) -> Result:
    """The future's result, for a request whose body has been read.

    If the client hangs up or the time runs out first, the future is cancelled: a job still in its queue is
    then never run. Raises HangUpError, DeadlineError, or what the future raises.
    """
    loop, thread = asyncio.get_running_loop(), threading.get_ident()

    def watch(wake: Callable[[], None]) -> None:
        def tell(_: object) -> None:
            if threading.get_ident() == thread:
                wake()
            else:
                with contextlib.suppress(RuntimeError):  # the loop has ended, and with it who waits
                    loop.call_soon_threadsafe(wake)

        future.add_done_callback(tell)

    try:
        await _in_time(request, future.done, watch, deadline)
        if future.cancelled():  # by who ends the service
            raise asyncio.CancelledError
        return future.result()
    finally:
        future.cancel()  # before anybody is answered; does nothing if it has begun


async def outcome_of(request: Request, steps: "Coroutine[Any, Any, Result]", deadline: Deadline) -> Result:
    """As `result_for`, of a coroutine of several steps, which is cancelled."""
    task = asyncio.create_task(steps)
    try:
        await _in_time(request, task.done, lambda wake: task.add_done_callback(lambda _: wake()), deadline)
        return task.result()
    finally:
        task.cancel()
        await asyncio.wait([task])  # until it has cancelled its own


async def settled(future: "Future[Result]") -> Result:
    """The future's result, for a step of a coroutine: cancelling that cancels the future at once."""
    waiting = asyncio.wrap_future(future)
    try:
        return await waiting
    finally:
        future.cancel()


async def _in_time(
    request: Request,
    is_done: Callable[[], bool],
    watch: Callable[[Callable[[], None]], None],
    deadline: Deadline,
) -> None:
    """Returns when something is done. Raises HangUpError and DeadlineError.

    watch: is given what is to be called, in the event loop's thread, when it is. asyncio.wait would take two
    turns of the loop more.
    """
    loop = asyncio.get_running_loop()
    woken: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not woken.done():
            woken.set_result(None)

    watch(wake)
    hang_up = asyncio.create_task(_hang_up(request))
    hang_up.add_done_callback(lambda _: wake())
    timer = loop.call_later(deadline.left, wake)
    try:
        await woken
        if is_done():
            return
        raise HangUpError if hang_up.done() else deadline.error()
    finally:
        timer.cancel()
        hang_up.cancel()


async def _hang_up(request: Request) -> None:
    """Returns when the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
