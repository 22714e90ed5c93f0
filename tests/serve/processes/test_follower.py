"""Readiness of a front end: what it reports, and how it heeds others. `http/test_repository.py` has swaps."""

import asyncio
import multiprocessing

import pytest
from waiting import PATIENCE

from lensbox.serve.errors import NotReadyError
from lensbox.serve.models.control import Report, Table
from lensbox.serve.processes.follower import Follower


def test_a_front_end_reports_and_heeds_the_others() -> None:
    control, supervisor = multiprocessing.Pipe()

    async def follow() -> None:
        follower = Follower("frontend-0", control, 1 << 16, 0.0)
        follower.is_ready = lambda: False
        starting = asyncio.create_task(follower.start())

        async def report() -> Report:
            found: Report = await asyncio.wait_for(asyncio.to_thread(supervisor.recv), PATIENCE)
            return found

        assert not (await report()).is_ready
        for number, (unready, is_waiting) in enumerate([({"frontend-1"}, True), ({"frontend-0"}, False)], 1):
            supervisor.send(Table(number, (), frozenset(unready)))
            while (await report()).number < number:  # further reports are heartbeats
                pass
            if is_waiting:
                with pytest.raises(NotReadyError, match="another front end cannot take images yet"):
                    follower.check_peers()
            else:
                follower.check_peers()  # its own readiness is another check
        starting.cancel()
        assert await follower.stop(PATIENCE)

    asyncio.run(follow())
    control.close()
    supervisor.close()
