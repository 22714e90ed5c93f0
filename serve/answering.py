"""Waits for a worker thread without blocking the event loop, and gives up when the client does."""

import asyncio
from collections.abc import Coroutine
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
    waiting = asyncio.wrap_future(future)
    try:
        return await _in_time(request, waiting, deadline)
    finally:
        future.cancel()  # before anybody is answered; does nothing if it has begun
        waiting.cancel()


async def outcome_of(request: Request, steps: "Coroutine[Any, Any, Result]", deadline: Deadline) -> Result:
    """As `result_for`, of a coroutine of several steps, which is cancelled."""
    task = asyncio.create_task(steps)
    try:
        return await _in_time(request, task, deadline)
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


async def _in_time(request: Request, waiting: "asyncio.Future[Result]", deadline: Deadline) -> Result:
    """What `waiting` gives. Raises HangUpError and DeadlineError."""
    hang_up = asyncio.create_task(_hang_up(request))
    try:
        either: set[asyncio.Future[Any]] = {waiting, hang_up}
        await asyncio.wait(either, timeout=deadline.left, return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            return waiting.result()
        if hang_up.done():
            raise HangUpError
        raise deadline.error()
    finally:
        hang_up.cancel()


async def _hang_up(request: Request) -> None:
    """Returns when the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
