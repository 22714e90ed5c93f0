"""The time limit of a request. `http/test_service.py` has deadlines and hang-ups of clients."""

import asyncio
import math

import pytest

from lensbox.serve.errors import ApiError, DeadlineError
from lensbox.serve.requests.limits import TimeLimit


async def _wait(limit: TimeLimit, *times: float, sooner: float = math.inf) -> str:
    cancelled = asyncio.Event()
    try:
        with limit:
            for seconds in times:
                limit.set(seconds, ApiError(408, "body_timeout", "too slow") if seconds < 0.5 else None)
            limit.sooner(sooner)
            try:
                await asyncio.sleep(2.0)
            except asyncio.CancelledError:
                cancelled.set()
                raise
    except ApiError as error:
        assert cancelled.is_set()
        await asyncio.sleep(0)  # the task goes on
        return error.message
    return "in time"


@pytest.mark.parametrize(
    ("client", "times", "sooner", "message"),
    [
        (0.01, [60.0], math.inf, "no answer within 0.01 seconds; try again later"),
        (60.0, [0.02], math.inf, "too slow"),
        (0.01, [0.02], math.inf, "no answer within 0.01 seconds; try again later"),
        (60.0, [0.02, 60.0], 0.03, "no answer within 0.03 seconds; try again later"),
        (60.0, [0.02, math.inf], math.inf, "in time"),
    ],
)
def test_the_first_deadline_ends_what_a_request_waits_for(
    client: float, times: list[float], sooner: float, message: str
) -> None:
    assert asyncio.run(_wait(TimeLimit(client), *times, sooner=sooner)) == message


def test_a_hang_up_is_no_deadline() -> None:
    async def hang_up() -> None:
        waiting = asyncio.create_task(_wait(TimeLimit(60.0), 60.0))
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(hang_up())
    assert issubclass(DeadlineError, ApiError)
