"""The state that all requests of one app share, the endpoints, which admit requests, and their calls."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import Request, Response
from msgspec import Struct
from starlette.types import Receive, Scope, Send

from lensbox.serve.engine.jobs import Job
from lensbox.serve.errors import NotReadyError, OverloadError
from lensbox.serve.http.answers import answer_to, json_response
from lensbox.serve.http.api_keys import Keys
from lensbox.serve.models.served import Models, ModelVersion
from lensbox.serve.observability.metrics import Metrics, State
from lensbox.serve.requests.body import Body, receive
from lensbox.serve.requests.decoding import Decoders, in_thread
from lensbox.serve.requests.limits import LIMIT, TimeLimit, time_limit
from lensbox.serve.settings import Settings

Result = TypeVar("Result")
Returned = TypeVar("Returned")

_IN_FLIGHT = 2  # jobs of a request: the engine need not wait, and serves other requests in between
_PAUSE = 0.02  # seconds before the engine is asked again


@dataclass
class Service:
    """Settings, models, keys, metrics, threads and state of one app.

    in_progress: number of admitted requests. draining: True once the service is shutting down.
    """

    settings: Settings
    models: Models
    keys: Keys
    metrics: Metrics
    in_progress: int = 0
    draining: bool = False

    def __post_init__(self) -> None:
        self.decoders = Decoders(self.settings, self.metrics.image_decoded)
        # Not the decoders' threads: a loss does not wait for images. One thread, as parsing holds the GIL.
        self.json_parser = ThreadPoolExecutor(1, thread_name_prefix="lensbox-json")

    def admit(self, request: Request) -> ModelVersion:
        """Shed load: admit or refuse a request, before its body is read. Return the version of its model.

        The request holds this version until `release`. Store it in the scope, for `model_of`, for the headers
        of the answer, and for metrics. Raise NotReadyError; ApiError (404); OverloadError at `max_requests`.
        """
        served = model_of(request)
        served.engine.ready_artifact()
        request.scope["lensbox.model"] = served
        if self.in_progress >= self.settings.max_requests:
            raise OverloadError(f"{self.in_progress} requests are already in progress; try again later")
        served.in_progress += 1
        self.in_progress += 1
        return served

    def release(self, served: ModelVersion) -> None:
        """Count the end of an admitted request, whose answer is ready."""
        served.in_progress -= 1
        self.in_progress -= 1

    def check_ready(self) -> None:
        """Raise NotReadyError unless the service can take images for all its models."""
        self.models.check_loaded()
        self.decoders.check()

    def check_available(self) -> None:
        """Raise NotReadyError unless new requests should come."""
        if self.draining:
            raise NotReadyError("the service is shutting down")
        self.check_ready()

    @property
    def is_ready(self) -> bool:
        """True if `check_ready` does not raise."""
        try:
            self.check_ready()
        except NotReadyError:
            return False
        return True

    def state(self) -> State:
        """Return the state for `Metrics.watch`."""
        models = {one.name: (one.engine.jobs, one.in_progress) for one in self.models.all}
        return self.is_ready and not self.draining, models


def service_of(request: Request) -> Service:
    """Return the service that a request belongs to."""
    service: Service = request.app.state.service
    return service


def model_of(request: Request) -> ModelVersion:
    """Return the model of an admitted request; else the one that the path names, or the default model.

    Raise what `Models.find` raises.
    """
    admitted: ModelVersion | None = request.scope.get("lensbox.model")
    if admitted is not None:
        return admitted
    models, names = service_of(request).models, request.path_params
    return models.find(names["name"], names.get("version")) if "name" in names else models.default


@dataclass(frozen=True)
class Endpoint:
    """One method of one path: an ASGI application with the rules for its requests.

    answer: returns a response or what becomes JSON, or raises an exception (see `answers.answer_to`).
    is_open: requests need no API key. is_probe: requests are logged at debug level and not traced.
    is_admitted: requests pass admission control.

    For the OpenAPI document, beside the docstring of `answer`: tag ("" leaves the path out), answers (type of
    the answer), query (type of its parameters).
    """

    method: str
    path: str
    answer: Callable[[Request], Awaitable[Any]]
    tag: str = ""
    answers: type[Any] | None = None
    query: type[Struct] | None = None
    is_open: bool = False
    is_probe: bool = False
    is_admitted: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = self  # for metrics and logs
        request = Request(scope, receive, send)
        service, served = service_of(request), None
        try:
            try:
                if not self.is_open:
                    service.keys.check(request.headers)
                limit = TimeLimit()
                if self.is_admitted:
                    limit = time_limit(request.headers)
                    served = service.admit(request)
                scope[LIMIT] = limit
                with limit:
                    answer = await self.answer(request)
                response = answer if isinstance(answer, Response) else json_response(answer)
            except (Exception, asyncio.CancelledError) as error:
                response = answer_to(error, scope)
        finally:
            if served is not None:
                service.release(served)  # before a client that does not read
        await response(scope, receive, send)


class Call:
    """A request that computes, of v1 or v2: read jobs from its body, compute them, write the answer.

    The model stays the same until the answer. `read` and `write` differ by endpoint. The constructor may
    refuse a request before its body is read.
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
