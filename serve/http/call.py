"""The way of all requests that compute, v1 and v2: read jobs from a body, compute them, write the answer."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from fastapi import Request

from lensbox.serve.engine.jobs import Job
from lensbox.serve.errors import OverloadError
from lensbox.serve.http.service import model_of, service_of
from lensbox.serve.requests.body import Body, receive
from lensbox.serve.requests.decoding import in_thread
from lensbox.serve.requests.limits import LIMIT, TimeLimit

Result = TypeVar("Result")
Returned = TypeVar("Returned")

_IN_FLIGHT = 2  # jobs of a request: those of others come in between, and the engine need not wait
_PAUSE = 0.02  # seconds before the engine is asked again


class Call:
    """A request with its model, which stays the same until the answer.

    `read` and `write` differ by endpoint. The constructor may refuse a request before its body is read.
    """

    def __init__(self, request: Request) -> None:
        self.request, self.service, self.served = request, service_of(request), model_of(request)
        self.settings, self.engine = self.service.settings, self.served.engine
        self.model = self.engine.ready_artifact()
        self.limit: TimeLimit = request.scope[LIMIT]
        self.largest_body = self.settings.max_body_bytes

    async def read(self, body: Body) -> Sequence[Job[Any]]:
        """Return the jobs of a request."""
        raise NotImplementedError

    async def write(self, results: list[Any]) -> Any:
        """Return the answer: a response, or what becomes JSON. results: of the jobs, in order."""
        raise NotImplementedError

    async def answer(self) -> Any:
        """Return the answer to the request."""
        jobs = await self.read(await receive(self.request, self.largest_body, self.settings))
        return await self.write(await self.compute(jobs))

    async def compute(self, jobs: Sequence[Job[Any]]) -> list[Any]:
        """Return the results of jobs. After an error, submit no further job."""
        if len(jobs) == 1:
            return [await self.engine.submit(jobs[0], self.limit.at)]
        results: list[Any] = [None] * len(jobs)
        numbers = iter(range(len(jobs)))

        async def work() -> None:
            for number in numbers:
                results[number] = await self._submit(jobs[number], is_first=number == 0)

        workers = [asyncio.create_task(work()) for _ in range(_IN_FLIGHT)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
        return results

    async def in_parser(self, function: Callable[..., Returned], *arguments: Any) -> Returned:
        """Call a function in the thread that reads and writes what takes long."""
        return await in_thread(self.service.json_parser, function, *arguments)

    async def _submit(self, job: Job[Result], is_first: bool) -> Result:
        """Submit a job; wait for memory if there is none, as the work so far would be lost."""
        while True:
            try:
                return await self.engine.submit(job, self.limit.at)
            except OverloadError:
                if is_first:
                    raise
            await asyncio.sleep(_PAUSE)
